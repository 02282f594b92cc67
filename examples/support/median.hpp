// SPDX-License-Identifier: Apache-2.0
//
// The median of samples.

#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tide_example {

/// The middle of some numbers; of two middle ones, their mean.  @pre there is one
[[nodiscard]] inline double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  const std::size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

}  // namespace tide_example
