# Finds NCCL's headers: target NCCL::NCCL, NCCL_VERSION, NCCL_INCLUDE_DIR. Looks into NCCL_ROOT, the CUDA toolkit, the
# system's folders, and Python's package nvidia-nccl. The library is found at run time (src/fabric/nccl_library.hpp).

find_path(NCCL_INCLUDE_DIR nccl.h
  HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_LIBRARY_ROOT} /usr/local/cuda PATH_SUFFIXES include)
# Python starts slowly, so it is asked only if NCCL was not found elsewhere.
if(NOT NCCL_INCLUDE_DIR)
  execute_process(
    COMMAND python3 -c "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"
    OUTPUT_VARIABLE _nccl_python_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(_nccl_python_dir)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${_nccl_python_dir} PATH_SUFFIXES include)
  endif()
endif()

if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION "${_nccl_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL INTERFACE IMPORTED)
  target_include_directories(NCCL::NCCL SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
endif()
