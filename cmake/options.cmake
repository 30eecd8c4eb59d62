# Settings of the whole tree.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # O3: the CPU path depends on vectorised loops. g1 (line tables) suffices for backtraces, and keeps binaries small
  # enough to copy to the machine with the GPUs.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG")
  if(NOT WEFT_QUICK_KERNELS)  # nobody debugs a quick build
    string(APPEND CMAKE_CXX_FLAGS_RELWITHDEBINFO " -g1")
  endif()

  # GCC collects its garbage only once it holds a GB and a half: a compiler run is a tenth shorter.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1500000>")

  find_program(WEFT_CCACHE ccache)
  if(WEFT_CCACHE)
    # A precompiled header is known by what it was made of.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${WEFT_CCACHE})
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                        "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${WEFT_CCACHE})
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_EXTENSIONS OFF)

# If the preset joins files (CMAKE_UNITY_BUILD), the given files stay alone. Each takes long by itself, or its headers
# clash with others.
function(weft_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# For targets that take longer to compile than to run: O3 costs half as long again and gains little. Not for benchmarks.
function(weft_quickly_compiled)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:RelWithDebInfo>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endforeach()
endfunction()

# For targets whose loops are all short: quick builds, and those of sanitizers, do not optimise them at all. Compilers need
# half their time.
function(weft_not_optimised)
  weft_quickly_compiled(${ARGN})
  if(WEFT_QUICK_KERNELS OR sanitized)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
    endforeach()
  endif()
endfunction()

# weft_precompiled(TARGET HEADERS...): in a preset that joins files these headers are also read only once. Elsewhere each
# file shows that it includes what it needs.
function(weft_precompiled target)
  if(CMAKE_UNITY_BUILD)
    list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>" OUTPUT_VARIABLE headers)
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()

# Sources are globbed: a new file needs no edit here, so branches that add files do not conflict. CONFIGURE_DEPENDS
# makes the build look for new files. A folder may be empty or absent.
function(weft_sources result)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${ARGN})
  set(${result} ${files} PARENT_SCOPE)
endfunction()

function(weft_sources_below result)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${ARGN})
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# weft_compiled_in(HEADER ARRAY WHAT): makes a header with the texts of files, so that none is needed at run time. WHAT
# is their pattern. HEADER lies in the build folder.
function(weft_compiled_in header compiled_in_array compiled_in_what)
  weft_sources(files ${compiled_in_what})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  list(LENGTH files compiled_in_count)
  set(compiled_in_entries "")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(APPEND compiled_in_entries "    {\"${file}\", R\"json(${text})json\"},\n")
  endforeach()
  configure_file(cmake/compiled_in.hpp.in ${CMAKE_BINARY_DIR}/generated/${header} @ONLY)
endfunction()
