# SPDX-License-Identifier: Apache-2.0
#
# Writes the texts of files into a .cc file, at build time:
#
#   cmake -DOUT=page_assets.cc -DHEADER=report/page_assets.h -DSTYLE="a.css" -DSCRIPT="a.js|b.js"
#         -P embed.cmake
#
# Each list becomes one function, its files joined in their order.
function(literal OUTPUT FILES)
  set(TEXT "")
  string(REPLACE "|" ";" FILES "${FILES}")
  foreach(FILE IN LISTS FILES)
    file(READ "${FILE}" CONTENT HEX)
    string(APPEND TEXT "${CONTENT}")
  endforeach()
  # As bytes, so that no character of the file means anything to CMake or to the compiler.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," TEXT "${TEXT}")
  string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)"
    "\\1\n" TEXT "${TEXT}")
  set(${OUTPUT} "${TEXT}" PARENT_SCOPE)
endfunction()

literal(STYLE_BYTES "${STYLE}")
literal(SCRIPT_BYTES "${SCRIPT}")
file(WRITE "${OUT}.new" "// Written by cmake/embed.cmake; the sources are the files it was given.
#include \"${HEADER}\"

namespace headroom {
namespace {

constexpr unsigned char kStyle[] = {
${STYLE_BYTES}0};
constexpr unsigned char kScript[] = {
${SCRIPT_BYTES}0};

std::string_view View(const unsigned char* text, size_t size) {
  return {reinterpret_cast<const char*>(text), size};
}

}  // namespace

std::string_view PageStyle() { return View(kStyle, sizeof(kStyle) - 1); }
std::string_view PageScript() { return View(kScript, sizeof(kScript) - 1); }

}  // namespace headroom
")
file(RENAME "${OUT}.new" "${OUT}")
