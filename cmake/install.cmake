# find_package(weft) gives weft::weft. Users need libsodium when they link. A build with CUDA also needs the CUDA
# toolkit.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(TARGETS weft EXPORT weft-targets)
install(DIRECTORY include/weft TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package_dir})
if(TARGET weft-cli)
  install(TARGETS weft-cli)
  install(PROGRAMS bench/plot.py DESTINATION ${CMAKE_INSTALL_DATADIR}/weft)
endif()
if(TARGET weft-gloo-peer)
  install(TARGETS weft-gloo-peer LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})  # beside the program
endif()

configure_package_config_file(cmake/weft-config.cmake.in ${CMAKE_BINARY_DIR}/weft-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/weft-config.cmake ${CMAKE_BINARY_DIR}/weft-config-version.cmake
  cmake/FindSodium.cmake DESTINATION ${package_dir})
install(FILES LICENSE README.md TYPE DOC)
