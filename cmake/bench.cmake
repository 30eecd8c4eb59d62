# weft-host-bench: Google Benchmark, CPU only. Not part of `all`: ask for it by name.

weft_sources(bench_files bench/*.cpp)
if(bench_files)
  find_package(benchmark QUIET)
  if(benchmark_FOUND)
    add_executable(weft-host-bench EXCLUDE_FROM_ALL ${bench_files})
    target_link_libraries(weft-host-bench PRIVATE weft weft_internal benchmark::benchmark_main)
  else()
    message(STATUS "Weft: no host benchmarks; not found: Google Benchmark (libbenchmark-dev)")
  endif()
endif()
