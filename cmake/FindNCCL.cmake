# Finds NCCL: target NCCL::NCCL, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY. Looks into NCCL_ROOT, the CUDA toolkit,
# the system's folders, and Python's package nvidia-nccl.

# Python starts slowly, so it is asked only if NCCL was not found elsewhere.
macro(_weft_find_nccl)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${ARGN} PATH_SUFFIXES include)
  # The Python package has no libnccl.so.
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${ARGN} PATH_SUFFIXES lib lib64)
endmacro()

_weft_find_nccl(${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_LIBRARY_ROOT} /usr/local/cuda)
if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
  execute_process(
    COMMAND python3 -c "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"
    OUTPUT_VARIABLE _nccl_python_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(_nccl_python_dir)
    unset(NCCL_INCLUDE_DIR CACHE)
    unset(NCCL_LIBRARY CACHE)
    _weft_find_nccl(${_nccl_python_dir})
  endif()
endif()

if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION "${_nccl_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL SHARED IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
