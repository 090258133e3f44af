# bascule::torch: LibTorch from a PyPI wheel, linked so that one binary runs with and without a GPU.
#
# Only libtorch_cpu, libc10 and libc10_cuda are linked, by path: libtorch.so and find_package(Torch) would pull in
# libtorch_cuda.so and everything it needs. A program that finds a GPU opens libtorch_cuda.so at run time.
if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(cache $ENV{XDG_CACHE_HOME})
elseif(NOT "$ENV{HOME}" STREQUAL "")
  set(cache $ENV{HOME}/.cache)
else()
  set(cache ${PROJECT_BINARY_DIR}/no-home)  # scripts/setup also needs one of the two
endif()
set(BASCULE_TORCH_DIR ${cache}/bascule/libtorch-2.11.0/torch CACHE PATH
    "Folder torch of the wheel torch==2.11.0 (scripts/setup puts it into the cache)")

set(BASCULE_HAVE_LIBTORCH OFF)
if(NOT BASCULE_LIBTORCH STREQUAL "OFF")
  if(EXISTS ${BASCULE_TORCH_DIR}/lib/libtorch_cpu.so)
    set(BASCULE_HAVE_LIBTORCH ON)
  elseif(BASCULE_LIBTORCH STREQUAL "ON")
    message(FATAL_ERROR "BASCULE_LIBTORCH=ON: no LibTorch in ${BASCULE_TORCH_DIR}; run scripts/setup, "
                        "or set BASCULE_TORCH_DIR to the folder torch of a torch 2.11 wheel")
  endif()
endif()

if(BASCULE_HAVE_LIBTORCH)
  add_library(bascule_torch INTERFACE)
  target_include_directories(bascule_torch SYSTEM INTERFACE
    ${BASCULE_TORCH_DIR}/include ${BASCULE_TORCH_DIR}/include/torch/csrc/api/include)
  target_link_libraries(bascule_torch INTERFACE
    ${BASCULE_TORCH_DIR}/lib/libtorch_cpu.so ${BASCULE_TORCH_DIR}/lib/libc10.so ${BASCULE_TORCH_DIR}/lib/libc10_cuda.so)
  target_link_options(bascule_torch INTERFACE
    -Wl,--unresolved-symbols=ignore-in-shared-libs
    -Wl,-rpath,${BASCULE_TORCH_DIR}/lib
    -Wl,-rpath,${BASCULE_TORCH_DIR}/../nvidia/cu13/lib -Wl,--disable-new-dtags)
  add_library(bascule::torch ALIAS bascule_torch)
endif()
