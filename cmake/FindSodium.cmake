# Finds libsodium: target Sodium::Sodium, SODIUM_INCLUDE_DIR, SODIUM_LIBRARY. The archive is preferred, so that programs
# linked with it also run without an installed libsodium.

find_path(SODIUM_INCLUDE_DIR sodium.h)
find_library(SODIUM_LIBRARY NAMES libsodium.a sodium)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium REQUIRED_VARS SODIUM_LIBRARY SODIUM_INCLUDE_DIR)
mark_as_advanced(SODIUM_INCLUDE_DIR SODIUM_LIBRARY)

if(Sodium_FOUND AND NOT TARGET Sodium::Sodium)
  add_library(Sodium::Sodium UNKNOWN IMPORTED)
  # A shared object linked with the archive keeps its names hidden, so they cannot clash with another libsodium.
  # Debian's archive is made for executables, but also links into shared objects.
  set_target_properties(Sodium::Sodium PROPERTIES
    IMPORTED_LOCATION ${SODIUM_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SODIUM_INCLUDE_DIR}
    INTERFACE_LINK_OPTIONS LINKER:--exclude-libs,libsodium.a)
endif()
