# SPDX-License-Identifier: Apache-2.0
#
# The libraries of docs/dependencies.md, as targets that are named alike on every system. With
# HEADROOM_PORTABLE the compiled ones are static.

# headroom_find(PACKAGE …): find_package, and on failure the one command that helps.
macro(headroom_find PACKAGE)
  find_package(${PACKAGE} ${ARGN} QUIET)
  if(NOT ${PACKAGE}_FOUND)
    message(FATAL_ERROR "${PACKAGE} ${ARGN} is missing: run scripts/install_dependencies, or see "
      "docs/dependencies.md")
  endif()
endmacro()

headroom_find(fmt)  # header-only: Debian packages no static library
headroom_find(nlohmann_json 3.11)
headroom_find(CLI11)
headroom_find(yaml-cpp)
if(HEADROOM_PORTABLE)
  set(ZLIB_USE_STATIC_LIBS ON)  # FindZLIB knows it from CMake 3.24 on
endif()
headroom_find(ZLIB)

# headroom_find_library(TARGET HEADER NAME): a library that comes without CMake's files, as TARGET.
function(headroom_find_library TARGET HEADER NAME)
  find_path(${TARGET}_INCLUDE_DIR ${HEADER})
  set(FILE_NAMES ${NAME})
  if(HEADROOM_PORTABLE)
    set(FILE_NAMES lib${NAME}.a)
  endif()
  find_library(${TARGET}_LIBRARY NAMES ${FILE_NAMES})
  if(NOT ${TARGET}_INCLUDE_DIR OR NOT ${TARGET}_LIBRARY)
    message(FATAL_ERROR "${NAME} is missing: run scripts/install_dependencies, or see "
      "docs/dependencies.md")
  endif()
  add_library(${TARGET} UNKNOWN IMPORTED)
  set_target_properties(${TARGET} PROPERTIES IMPORTED_LOCATION ${${TARGET}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${${TARGET}_INCLUDE_DIR})
endfunction()
headroom_find_library(pcre2 pcre2.h pcre2-8)
headroom_find_library(utf8proc utf8proc.h utf8proc)

if(HEADROOM_TESTS)
  headroom_find(GTest)
endif()

# yaml-cpp 0.7 exports yaml-cpp; 0.8 yaml-cpp::yaml-cpp, and a yaml-cpp that warns of its age.
set(HEADROOM_YAML_CPP yaml-cpp)
if(TARGET yaml-cpp::yaml-cpp)
  set(HEADROOM_YAML_CPP yaml-cpp::yaml-cpp)
  if(NOT TARGET yaml-cpp)
    add_library(yaml-cpp INTERFACE IMPORTED)
    target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
  endif()
  set_property(TARGET yaml-cpp PROPERTY DEPRECATION)
endif()

if(HEADROOM_PORTABLE)
  find_library(HEADROOM_YAML_CPP_STATIC libyaml-cpp.a REQUIRED)
  set_target_properties(${HEADROOM_YAML_CPP} PROPERTIES
    IMPORTED_CONFIGURATIONS "" IMPORTED_LOCATION ${HEADROOM_YAML_CPP_STATIC})
endif()
