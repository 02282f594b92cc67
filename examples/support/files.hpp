// SPDX-License-Identifier: Apache-2.0
//
// Whole files in and out, with an error that names the file.

#pragma once

#include <nlohmann/json.hpp>
#include <tide/core/error.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

namespace tide_example {

/// The content of a file.  @throws tide::Error (Errc::argument)
[[nodiscard]] inline std::string read_file(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();  // nothing to copy is an error of <<
  if (in.bad() || !text || (!in && !in.eof())) {
    tide::raise(tide::Errc::argument, "cannot read '" + path + "': " + (errno == 0 ? "no text" : std::strerror(errno)));
  }
  return std::move(text).str();
}

/// A file of JSON.  @throws tide::Error (Errc::argument)
[[nodiscard]] inline nlohmann::json read_json(const std::string& path) {
  try {
    return nlohmann::json::parse(read_file(path));
  } catch (const nlohmann::json::parse_error& error) {
    tide::raise(tide::Errc::argument, "'" + path + "' is not JSON: " + error.what());
  }
}

/// Hands `write` a stream to the file, or to standard output where `path` is "-".  @throws tide::Error (Errc::argument)
template <class Write>
void write_file(const std::string& path, Write write) {
  if (path == "-") return write(std::cout);
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (out) write(out);
  out.close();
  if (!out) {
    tide::raise(tide::Errc::argument, "cannot write '" + path + "': " + (errno == 0 ? "failed" : std::strerror(errno)));
  }
}

}  // namespace tide_example
