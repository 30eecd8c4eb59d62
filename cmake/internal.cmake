# weft_internal: the flags, include folders and header-only libraries of all targets of this tree. Users of the
# installed library get none of them.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost REQUIRED)
find_package(Sodium REQUIRED)

add_library(weft_internal INTERFACE)
target_compile_features(weft_internal INTERFACE cxx_std_20)
target_include_directories(weft_internal INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(weft_internal INTERFACE WEFT_WITH_CUDA=${WEFT_WITH_CUDA})

# Programs that use the library need the sanitizers' flags, too. Sanitizers do not follow the simulator's fibers from
# stack to stack.
set(sanitized OFF)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(sanitized ON)
  set(WEFT_SIMULATE OFF)
  add_compile_definitions(WEFT_KEEPS_LOOPS)  # base/function.hpp
endif()

# fmt and spdlog are used as headers, so that an executable also runs without them. Debian's spdlog target depends on
# the compiled fmt, so the definitions are set by hand. src/base/fmt.cpp compiles fmt 9 once for all files. Under
# sanitizers it is the shared library, since nobody carries these executables to another machine.
set(fmt fmt::fmt-header-only)
if(sanitized)
  set(fmt fmt::fmt)
elseif(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  set(fmt)
  get_target_property(fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(weft_internal SYSTEM INTERFACE ${fmt_include})
endif()
get_target_property(spdlog_include spdlog::spdlog_header_only INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(weft_internal SYSTEM INTERFACE ${spdlog_include})
target_compile_definitions(weft_internal INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(weft_internal INTERFACE
  ${fmt} nlohmann_json::nlohmann_json CLI11::CLI11 Boost::headers Sodium::Sodium Threads::Threads)

# Sums must have the same bits everywhere: no multiply-add is fused unless the source says so.
set(host_flags -ffp-contract=off -Wall -Wextra)
if(WEFT_WERROR)
  list(APPEND host_flags -Werror)
endif()
# False alarms: GCC 12 for std::string's operator+ (GCC bug 105651), GCC 13 for inlined code of fmt and <algorithm>.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND host_flags -Wno-restrict)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND host_flags -Wno-array-bounds -Wno-stringop-overflow)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND host_flags -Wno-pass-failed)  # unrolling is a wish, for GPUs
endif()
target_compile_options(weft_internal INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${host_flags};-Wpedantic>)
if(WEFT_WITH_CUDA)
  list(JOIN host_flags "," nvcc_host_flags)
  # CMake 3.25 does not know nvcc's flag for C++20 and would silently omit it.
  target_compile_options(weft_internal INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--fmad=false;-Xcompiler=${nvcc_host_flags}>")
  # fmt 9 turns constexpr off under nvcc, and does not compile without it in C++20.
  target_compile_definitions(weft_internal INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  if(WEFT_WERROR)
    target_compile_options(weft_internal INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
  endif()
  target_link_libraries(weft_internal INTERFACE CUDA::cudart_static NCCL::NCCL)
endif()
