# Enables the language CUDA if a toolkit 12.5 or newer is found, and sets the flags of our kernels.
#
# It searches where CMake does (CUDACXX, CMAKE_CUDA_COMPILER, the PATH), then in /usr/local/cuda, and last in the cache
# that scripts/setup --cuda fills. libcudart is linked dynamically, so that a process has only one. libcuda is never
# linked (transport/cuda/driver.h looks its functions up), so that one binary runs with and without a driver.
set(BASCULE_HAVE_CUDA OFF)
if(BASCULE_SANITIZE AND BASCULE_CUDA STREQUAL "ON")
  message(FATAL_ERROR "BASCULE_CUDA=ON with BASCULE_SANITIZE=${BASCULE_SANITIZE}: nvcc supports no sanitizers; give BASCULE_CUDA=OFF, or use compute-sanitizer on a build without them")
endif()
if(BASCULE_CUDA STREQUAL "OFF" OR BASCULE_SANITIZE)
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # look again, even if an earlier run found none
endif()
if(NOT CMAKE_CUDA_COMPILER AND "$ENV{CUDACXX}" STREQUAL "")
  find_program(nvcc nvcc HINTS $ENV{CUDAToolkit_ROOT}/bin /usr/local/cuda/bin ${cache}/bascule/cuda-13.0.2/nvidia/cu13/bin NO_CACHE)
  if(nvcc)
    set(CMAKE_CUDA_COMPILER ${nvcc} CACHE FILEPATH "nvcc")
  endif()
endif()

# Machine code for A100, H100 and H200; on newer GPUs the driver compiles the PTX at the first run.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
if(NOT DEFINED CMAKE_CUDA_RUNTIME_LIBRARY)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  find_package(CUDAToolkit 12.5)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cudart)
    set(BASCULE_HAVE_CUDA ON)
  endif()
endif()
if(BASCULE_CUDA STREQUAL "ON" AND NOT BASCULE_HAVE_CUDA)
  message(FATAL_ERROR "BASCULE_CUDA=ON: no CUDA toolkit 12.5 or newer was found (nvcc on the PATH, CUDACXX, "
                      "/usr/local/cuda); run scripts/setup --cuda, which installs one into the cache")
endif()
if(NOT BASCULE_HAVE_CUDA)
  return()
endif()

if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc supports C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)

# Flags for our .cu files.
add_library(bascule_cuda_flags INTERFACE)
target_compile_options(bascule_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${BASCULE_WERROR}>>:-Werror=all-warnings>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${BASCULE_WERROR}>>:-Xcompiler=-Werror>)
