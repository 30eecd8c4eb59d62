# weft-fuzz: libFuzzer over input from outside (tests/fuzz), with only the sources of the library that it needs.

weft_sources(fuzz_files tests/fuzz/*.cpp)
list(FILTER fuzz_files EXCLUDE REGEX "_test\\.cpp$")
weft_sources(fuzzed_files src/rendezvous/*.cpp)
set(model_files models config_fields config_file layer_blocks layer_rules presets)
list(TRANSFORM model_files PREPEND apps/weft/models/)
list(TRANSFORM model_files APPEND .cpp)
list(APPEND fuzzed_files src/comm/agreed_tuning.cpp src/tuning/tuning.cpp src/tuning/layer_file.cpp src/tuning/exchange_file.cpp src/base/build_info.cpp ${model_files})
weft_alone(src/tuning/tuning.cpp src/tuning/layer_file.cpp src/tuning/exchange_file.cpp)  # they include a JSON library, so they stay out of unity batches

add_executable(weft-fuzz EXCLUDE_FROM_ALL ${fuzz_files} ${fuzzed_files})
add_dependencies(weft-fuzz weft_build_info)
target_include_directories(weft-fuzz PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/apps/weft ${CMAKE_BINARY_DIR}/generated/tuning
  ${CMAKE_BINARY_DIR}/generated/models)
target_link_libraries(weft-fuzz PRIVATE weft_internal)
target_link_options(weft-fuzz PRIVATE -fsanitize=fuzzer)
