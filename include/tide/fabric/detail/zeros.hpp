// SPDX-License-Identifier: Apache-2.0
//
// Zeros: read-only host memory of zeros that stands in for missing gradients. From calloc, so that its pages cost
// nothing until they are read, and little then.

#pragma once

#include <tide/layout/layout_view.hpp>  // LayoutView

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace tide::detail {

// Bytes of the largest gradient of a layout; 1 at least.
[[nodiscard]] inline index_t largest_gradient_bytes(const LayoutView& layout) noexcept {
  index_t bytes = 1;
  for (const Parameter& parameter : layout.group.parameters) {
    bytes = std::max(bytes, parameter.shape.elements() * static_cast<index_t>(size_bytes(parameter.gradient)));
  }
  return bytes;
}

class Zeros {
 public:
  // Sets so many bytes aside, the first time; what is wrong where there are not so many.
  [[nodiscard]] const char* reserve(index_t bytes) noexcept {
    if (!memory_) memory_.reset(std::calloc(static_cast<std::size_t>(bytes), 1));
    if (memory_) return nullptr;
    return "tide::GradientTable: there is no memory for the zeros of missing gradients.";
  }

  [[nodiscard]] const void* data() const noexcept { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

}  // namespace tide::detail
