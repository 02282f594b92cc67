// SPDX-License-Identifier: Apache-2.0
//
// The parameter lists under tests/data/models, read as the example programs read them.

#pragma once

#include <string>

#include "../../examples/support/model_file.hpp"

namespace tide_test {

/// The model whose file is called `name`.
inline tide_example::FileModel model_file(const std::string& name) {
  return tide_example::read_model_file(std::string(TIDE_TESTS_DIR "/data/models/") + name + ".json");
}

}  // namespace tide_test
