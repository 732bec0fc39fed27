# SPDX-License-Identifier: Apache-2.0
#
# add_component(NAME SOURCES … [TESTS …] [DEPS …] [PRIVATE …])
#
# A folder of src/ as a static library headroom_NAME (headroom::NAME to those who link it), and its
# unit tests as one program NAME_test. DEPS are other components, PRIVATE are libraries that no
# header of this component shows.
function(add_component NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPS;PRIVATE" ${ARGN})
  add_library(headroom_${NAME} STATIC ${ARG_SOURCES})
  add_library(headroom::${NAME} ALIAS headroom_${NAME})
  set_target_properties(headroom_${NAME} PROPERTIES EXPORT_NAME ${NAME})
  target_include_directories(headroom_${NAME} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:include/headroom>)
  target_compile_features(headroom_${NAME} PUBLIC cxx_std_20)
  foreach(DEP IN LISTS ARG_DEPS)
    target_link_libraries(headroom_${NAME} PUBLIC headroom_${DEP})
  endforeach()
  target_link_libraries(headroom_${NAME} PRIVATE $<BUILD_INTERFACE:headroom_flags>)
  foreach(LIBRARY IN LISTS ARG_PRIVATE)
    target_link_libraries(headroom_${NAME} PRIVATE $<BUILD_INTERFACE:${LIBRARY}>)
  endforeach()

  if(HEADROOM_TESTS AND ARG_TESTS)
    add_executable(${NAME}_test ${ARG_TESTS})
    target_link_libraries(${NAME}_test PRIVATE headroom_${NAME} headroom_flags
      GTest::gmock GTest::gtest_main ${ARG_PRIVATE})
    target_compile_definitions(${NAME}_test PRIVATE
      HEADROOM_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    add_test(NAME ${NAME} COMMAND ${NAME}_test)
    set_tests_properties(${NAME} PROPERTIES LABELS unit)
  endif()
endfunction()
