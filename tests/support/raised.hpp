// SPDX-License-Identifier: Apache-2.0
//
// What a call raised, as a value that a test can compare.

#pragma once

#include <tide/core/error.hpp>

#include <optional>
#include <string>

namespace tide_test {

/// The error that `call` raised, or nothing.
template <class F>
std::optional<tide::Error> raised(F call) {
  try {
    call();
  } catch (const tide::Error& error) {
    return error;
  }
  return std::nullopt;
}

/// The text of the error that `call` raised; empty where it raised none.
template <class F>
std::string text_of(F call) {
  const std::optional<tide::Error> error = raised(call);
  return error ? error->what() : "";
}

}  // namespace tide_test
