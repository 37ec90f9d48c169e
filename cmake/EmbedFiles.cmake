# Writes a C++ source with the contents of files as constants:
#   cmake -D OUTPUT=x.cc -D NAMESPACE=a::b -D "FILES=kName=path|kOther=path" -P EmbedFiles.cmake
string(REPLACE "|" ";" _files "${FILES}")
set(_text "// Made by cmake/EmbedFiles.cmake.\n#include <string_view>\n\nnamespace ${NAMESPACE} {\n")
foreach(_file IN LISTS _files)
  string(REGEX MATCH "^([A-Za-z]+)=(.*)$" _ "${_file}")
  set(_name "${CMAKE_MATCH_1}")
  file(READ "${CMAKE_MATCH_2}" _hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" _hex "${_hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," _hex "${_hex}")
  string(APPEND _text
    "static const char ${_name}Bytes[] = {\n${_hex}'\\0'};\n"
    "extern const std::string_view ${_name};\n"
    "constinit const std::string_view ${_name}(${_name}Bytes, sizeof(${_name}Bytes) - 1);\n")
endforeach()
file(WRITE "${OUTPUT}" "${_text}}  // namespace ${NAMESPACE}\n")
