# The command-line program `weft`.

weft_sources(cli_files src/cli/*.cpp)
if(WEFT_WITH_CUDA)
  weft_sources(cli_cuda_files src/cli/*.cu)
  list(APPEND cli_files ${cli_cuda_files})
endif()

if(cli_files)
  add_executable(weft-cli ${cli_files})
  set_target_properties(weft-cli PROPERTIES OUTPUT_NAME weft)
  target_link_libraries(weft-cli PRIVATE weft weft_internal)
endif()
