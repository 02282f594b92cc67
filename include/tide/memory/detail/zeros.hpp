// SPDX-License-Identifier: Apache-2.0
//
// Zeros: read-only memory of zeros that stands in for missing gradients. From calloc, so that its pages cost nothing
// until they are read, and little then.

#pragma once

#include <tide/core/error.hpp>  // raise
#include <tide/core/math.hpp>   // index_t

#include <cstdlib>
#include <memory>

namespace tide::detail {

class Zeros {
 public:
  explicit Zeros(index_t bytes) : memory_(std::calloc(static_cast<std::size_t>(bytes), 1)) {
    if (!memory_) raise(Errc::capacity, "tide::GradientTable: there is no memory for the zeros of missing gradients.");
  }

  [[nodiscard]] const void* data() const noexcept { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

}  // namespace tide::detail
