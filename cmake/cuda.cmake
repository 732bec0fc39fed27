# SPDX-License-Identifier: Apache-2.0
#
# HEADROOM_CUDA=ON|AUTO|OFF: the CUDA backend of the native engine, HEADROOM_HAS_CUDA when it is
# part of the build. cuBLASLt is opened at run time, so that the program starts without it.
set(HEADROOM_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF, or AUTO where nvcc is found")
set_property(CACHE HEADROOM_CUDA PROPERTY STRINGS ON AUTO OFF)
set(HEADROOM_CUDA_ARCHITECTURES "80-real;86-real;89-real;90" CACHE STRING
  "What the CUDA backend is compiled for: machine code, and PTX of the last for newer cards")

set(HEADROOM_HAS_CUDA OFF)
if(HEADROOM_CUDA)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(HEADROOM_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(HEADROOM_NVCC)
      set(CMAKE_CUDA_COMPILER ${HEADROOM_NVCC})
    endif()
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${HEADROOM_CUDA_ARCHITECTURES})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(HEADROOM_HAS_CUDA ON)
  elseif(HEADROOM_CUDA STREQUAL "AUTO")
    message(STATUS "no nvcc: without the CUDA backend")
  else()
    message(FATAL_ERROR "HEADROOM_CUDA=ON needs nvcc of CUDA 12 or newer: set CUDACXX, or leave it "
      "to AUTO")
  endif()
endif()

# CMake 3.25 knows no -std=c++20 of nvcc, which has it since CUDA 12.
if(HEADROOM_HAS_CUDA AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  list(APPEND CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
endif()

# Attention by cuDNN, which is opened at run time; its headers and those of cudnn-frontend 1.x come
# from the toolkit and from `pip install nvidia-cudnn-frontend`, or from the paths set here.
set(HEADROOM_HAS_CUDNN OFF)
if(HEADROOM_HAS_CUDA)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  find_path(HEADROOM_CUDNN_FRONTEND cudnn_frontend.h HINTS ${Python3_SITELIB}/include
    DOC "Folder of cudnn_frontend.h")
  find_path(HEADROOM_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
    ${Python3_SITELIB}/nvidia/cudnn/include DOC "Folder of cudnn.h")
  if(HEADROOM_CUDNN_FRONTEND AND HEADROOM_CUDNN_INCLUDE)
    set(HEADROOM_HAS_CUDNN ON)
  else()
    message(STATUS "no headers of cuDNN and cudnn-frontend: attention by our own kernels alone")
  endif()
endif()
