# The Python package: libweft.so, weft._core (nanobind) and the program, in the component `python`. pyproject.toml makes
# a wheel of it; tests install it into the build folder.

set(WEFT_PYTHON AUTO CACHE STRING "Build the Python package: AUTO (where nanobind is found), ON or OFF")
set_property(CACHE WEFT_PYTHON PROPERTY STRINGS AUTO ON OFF)
set(WEFT_WITH_PYTHON OFF)
if(WEFT_PYTHON STREQUAL "OFF" OR sanitized)
  return()
endif()

# ./dev installs nanobind into a virtual environment of the build folder (tools/python.sh).
set(python_environment ${PROJECT_SOURCE_DIR}/build/python)
if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${python_environment}/bin/python)
  set(Python_EXECUTABLE ${python_environment}/bin/python)
endif()
find_package(Python 3.10 COMPONENTS Interpreter Development.Module)
if(Python_FOUND)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE nanobind_missing)
endif()
if(NOT Python_FOUND OR nanobind_missing)
  if(WEFT_PYTHON STREQUAL "ON")
    message(FATAL_ERROR "Weft: WEFT_PYTHON=ON, but Python (>= 3.10) with its headers and nanobind were not found")
  endif()
  message(STATUS "Weft: without the Python package; not found: Python (>= 3.10) with its headers and nanobind")
  return()
endif()
find_package(nanobind 3.1 CONFIG REQUIRED)
set(WEFT_WITH_PYTHON ON)

# Split mode: the module is compiled once, for the stable interface of Python 3.10, and nanobind-backend, a package of
# its own, knows each Python.
weft_sources(binding_files python/core/*.cpp)
nanobind_add_module(weft-python STABLE_ABI NB_SUPPRESS_WARNINGS NB_DOMAIN weft BACKEND_MODULE nanobind_backend
  ${binding_files})
set_target_properties(weft-python PROPERTIES OUTPUT_NAME _core INSTALL_RPATH $ORIGIN)
target_compile_definitions(weft-python PRIVATE WEFT_PACKAGE_VERSION="${PROJECT_VERSION}")
target_include_directories(weft-python PRIVATE python/core include)
target_link_libraries(weft-python PRIVATE weft-shared fmt::fmt-header-only)

nanobind_add_stub(weft-python-stub MODULE _core OUTPUT ${CMAKE_BINARY_DIR}/python/_core.pyi
  PYTHON_PATH $<TARGET_FILE_DIR:weft-python> ${PROJECT_SOURCE_DIR}/python DEPENDS weft-python INCLUDE_PRIVATE)

# The program's code lies in libweft.so, too, so that a wheel has the kernels once. Its executable only calls it
# (cmake/exports.map, WEFT_PRIVATE). -fno-semantic-interposition: calls within a file stay calls, as in an executable.
set(program_parts weft-cli-parts)
if(TARGET weft-cutlass)
  list(APPEND program_parts weft-cutlass)
endif()
foreach(part IN LISTS program_parts ITEMS weft-sim weft-oracle)
  set_property(TARGET ${part} PROPERTY POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${part} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endforeach()
list(TRANSFORM program_parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
target_sources(weft-shared PRIVATE ${program_parts})
target_link_libraries(weft-shared PRIVATE weft-sim weft-oracle)
add_executable(weft-python-cli apps/weft/main.cpp)
target_include_directories(weft-python-cli PRIVATE apps/weft)
target_link_libraries(weft-python-cli PRIVATE weft-shared weft_internal)
set_target_properties(weft-python-cli PROPERTIES OUTPUT_NAME weft INSTALL_RPATH $ORIGIN/..
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/bin)

install(TARGETS weft-python weft-shared LIBRARY DESTINATION weft COMPONENT python)
install(FILES ${CMAKE_BINARY_DIR}/python/_core.pyi DESTINATION weft COMPONENT python)
install(TARGETS weft-python-cli RUNTIME DESTINATION weft/bin COMPONENT python)
install(PROGRAMS bench/plot.py DESTINATION weft/share/weft COMPONENT python)
if(NOT SKBUILD)  # a wheel takes them from the source folder
  install(DIRECTORY python/weft DESTINATION . COMPONENT python PATTERN __pycache__ EXCLUDE)
endif()
