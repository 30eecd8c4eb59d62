# The command-line program `weft`. Everything except its main() is an object library, so that tests link it, too.

weft_sources_below(cli_files apps/weft/*.cpp)
list(FILTER cli_files EXCLUDE REGEX "/gloo/")
if(WEFT_WITH_CUDA)
  weft_sources_below(cli_cuda_files apps/weft/*.cu)
  list(APPEND cli_files ${cli_cuda_files})
endif()
list(REMOVE_ITEM cli_files apps/weft/main.cpp)
list(FILTER cli_files EXCLUDE REGEX "/gemm/(no_)?cutlass")  # cmake/cutlass.cmake has them
if(NOT WEFT_SIMULATE)
  list(TRANSFORM cli_files REPLACE apps/weft/simulate/simulate.cpp tests/twins/no_simulator.cpp)
endif()

if(cli_files)
  add_library(weft-cli-parts OBJECT ${cli_files})
  target_link_libraries(weft-cli-parts PUBLIC weft weft_internal weft-oracle)
  target_include_directories(weft-cli-parts PUBLIC ${PROJECT_SOURCE_DIR}/apps/weft)
  weft_compiled_in(models/models/model_files.hpp kModelFiles models/*.json)
  target_include_directories(weft-cli-parts PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${CMAKE_BINARY_DIR}/generated/models>)
  weft_quickly_compiled(weft-cli-parts)
  weft_precompiled(weft-cli-parts CLI/CLI.hpp fmt/format.h nlohmann/json.hpp algorithm functional memory string vector)
  # Most time goes to templates of libraries, which every batch compiles anew.
  set_target_properties(weft-cli-parts PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  if(sanitized)
    target_compile_options(weft-cli-parts PRIVATE -O0)
    weft_alone(apps/weft/gemm/plain_gemm.cpp)  # tests compute every output of layers with it
    set_property(SOURCE apps/weft/gemm/plain_gemm.cpp APPEND PROPERTY COMPILE_OPTIONS -O1)
    set_property(SOURCE apps/weft/gemm/plain_gemm.cpp PROPERTY SKIP_PRECOMPILE_HEADERS ON)  # those are not optimised
  endif()
endif()

include(cmake/cutlass.cmake)

# The plotting script lies in the build folder as in an installation, seen from the program.
set(plot_script ${CMAKE_INSTALL_DATADIR}/weft/plot.py)
configure_file(bench/plot.py ${CMAKE_BINARY_DIR}/${plot_script} COPYONLY)
set_property(SOURCE apps/weft/bench/plot.cpp APPEND PROPERTY COMPILE_DEFINITIONS WEFT_PLOT_SCRIPT="../${plot_script}")

if(cli_files AND sim_files AND WEFT_SIMULATE)
  weft_simulator(weft-sim)
  target_link_libraries(weft-cli-parts PUBLIC weft-sim)
endif()

weft_sources(cli_main apps/weft/main.cpp)
if(cli_main)
  add_executable(weft-cli ${cli_main})
  set_target_properties(weft-cli PROPERTIES OUTPUT_NAME weft)
  target_link_libraries(weft-cli PRIVATE weft weft_internal $<TARGET_NAME_IF_EXISTS:weft-cli-parts>)
endif()

# Gloo, the peer of the CPU path: a module that `weft` loads if it lies beside the program. Debian has Gloo only as a
# shared library, and `weft` must also run without it.
weft_sources(gloo_peer_files apps/weft/peers/gloo/*.cpp)
find_library(GLOO_LIBRARY gloo)
find_path(GLOO_INCLUDE_DIR gloo/allreduce.h)
mark_as_advanced(GLOO_LIBRARY GLOO_INCLUDE_DIR)
if(TARGET weft-cli AND gloo_peer_files AND GLOO_LIBRARY AND GLOO_INCLUDE_DIR)
  add_library(weft-gloo-peer MODULE ${gloo_peer_files})
  set_target_properties(weft-gloo-peer PROPERTIES PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:weft-cli>)
  target_include_directories(weft-gloo-peer PRIVATE ${PROJECT_SOURCE_DIR}/apps/weft)
  target_include_directories(weft-gloo-peer SYSTEM PRIVATE ${GLOO_INCLUDE_DIR})
  target_link_libraries(weft-gloo-peer PRIVATE weft_internal fmt::fmt-header-only ${GLOO_LIBRARY})
  add_dependencies(weft-cli weft-gloo-peer)
endif()
