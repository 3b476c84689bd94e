# The tests run over the SQLite of the system, or over another one:
#
#   cmake --preset release -DLM_SQLITE_LIBRARY_DIR=/opt/sqlite/lib && ctest --preset release
#
# A SQLite that was built with -DSQLITE_DEBUG -DSQLITE_ENABLE_API_ARMOR -DSQLITE_STRICT_SUBTYPE=1
# finds calls that it is too polite to complain of otherwise.
set(LM_SQLITE_LIBRARY_DIR "" CACHE PATH
  "Folder of another libsqlite3.so.0 for the tests, and of its sqlite3 shell if there is one")

# lm_test_over_sqlite(<test>): it finds that SQLite first.
function(lm_test_over_sqlite name)
  if(LM_SQLITE_LIBRARY_DIR)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
      LM_SQLITE_LIBRARY_DIR=${LM_SQLITE_LIBRARY_DIR})
    set_property(TEST ${name} PROPERTY ENVIRONMENT_MODIFICATION
      LD_LIBRARY_PATH=path_list_prepend:${LM_SQLITE_LIBRARY_DIR}
      PATH=path_list_prepend:${LM_SQLITE_LIBRARY_DIR})
  endif()
endfunction()
