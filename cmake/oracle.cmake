# weft-oracle: what operations must give. It is compiled without the project's include folders, so that it includes
# nothing of the library; only who names `oracle/` finds it.

weft_sources(oracle_files oracle/*.cpp)
add_library(weft-oracle STATIC EXCLUDE_FROM_ALL ${oracle_files})
target_compile_features(weft-oracle PUBLIC cxx_std_20)
target_include_directories(weft-oracle PUBLIC ${PROJECT_SOURCE_DIR})
target_compile_options(weft-oracle PRIVATE ${host_flags} -Wpedantic)
# The oracle has no threads, and no memory that outlives a call. An eighth of all time of the tests under ThreadSanitizer
# was in its loops. The linker takes templates that others have from them, since the oracle comes last.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
  target_compile_options(weft-oracle PRIVATE -fno-sanitize=thread)
endif()
