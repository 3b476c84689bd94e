# Puts the model that ships beside the library: cmake -DFROM=<file> -DTO=<folder> -P copy_model.cmake
if(EXISTS "${FROM}")
  file(COPY "${FROM}" DESTINATION "${TO}")
endif()
