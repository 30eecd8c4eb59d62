# Run at build time (cmake -P): writes weft_build_info.hpp. configure_file leaves an unchanged file alone.

execute_process(COMMAND git -C ${source_dir} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(dirty false)
if(failed)
  set(commit "unknown")
else()
  execute_process(COMMAND git -C ${source_dir} --no-optional-locks status --porcelain
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/weft_build_info.hpp.in ${output} @ONLY)
