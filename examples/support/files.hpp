// SPDX-License-Identifier: Apache-2.0
//
// Whole files in and out, with an error that names the file.

#pragma once

#include <nlohmann/json.hpp>
#include <tide/core/error.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

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

/// JSON in which no key is there twice in one object (the last one would win without a word), nothing is nested so deep
/// that a recursive visitor could not bear it, and no text holds NUL, which would end errors before they end.
/// `fail(what)` must not return.
template <class Fail>
[[nodiscard]] nlohmann::json parse_strictly(const std::string& text, const Fail& fail) {
  // The parser takes NUL for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string::npos) {
    fail("this is not JSON: byte " + std::to_string(nul) + " is NUL");
  }
  std::vector<std::set<std::string>> open_objects;
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > 32) fail("values must not be nested more than 32 deep");
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    const auto shown = [&] { return value.dump(-1, ' ', true).substr(0, 60); };
    if (value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos) {
      fail("a name or text must not hold NUL, as " + shown() + " does");
    }
    if (event == Event::key && !open_objects.back().insert(value.get<std::string>()).second) {
      fail("the key " + shown() + " is there twice in one object");
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, check);
  } catch (const nlohmann::json::exception& error) {
    fail("this is not JSON: " + std::string(error.what()).substr(0, 150));
    std::abort();
  }
}

/// A file of JSON.  @throws tide::Error (Errc::argument)
[[nodiscard]] inline nlohmann::json read_json(const std::string& path) {
  return parse_strictly(read_file(path),
                        [&](const std::string& what) { tide::raise(tide::Errc::argument, "'" + path + "': " + what); });
}

/// Refuses a file, in the words of the system where it has some.
[[noreturn]] inline void refuse_to_write(const std::string& path) {
  tide::raise(tide::Errc::argument, "cannot write '" + path + "': " + (errno == 0 ? "failed" : std::strerror(errno)));
}

/// Refuses a file that cannot be written, so that nobody works for nothing; leaves what is in it alone, and no file
/// where there was none.  @throws tide::Error (Errc::argument)
inline void require_writable(const std::string& path) {
  if (path == "-") return;
  std::error_code ignored;
  const bool was_there = std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
  errno = 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) refuse_to_write(path);
  if (!was_there) std::filesystem::remove(path, ignored);
}

/// Hands `write` a stream to the file, or to standard output where `path` is "-".  @throws tide::Error (Errc::argument)
template <class Write>
void write_file(const std::string& path, Write write) {
  if (path == "-") return write(std::cout);
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (out) write(out);
  out.close();
  if (!out) refuse_to_write(path);
}

}  // namespace tide_example
