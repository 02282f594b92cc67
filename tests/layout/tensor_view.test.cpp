// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/tensor_view.hpp>

#include "support/raised.hpp"

#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using Matrix = tide::TensorView<float, 2, 3>;

static_assert(Matrix::rank() == 2 && Matrix::size() == 6 && Matrix::extent(0) == 2 && Matrix::extent(1) == 3);
static_assert(tide::TensorView<float, 4, 0>::size() == 0 && tide::TensorView<float, 7>::rank() == 1);
static_assert(tide::TensorView<char, 262144, 8960, 4>::size() == 9'395'240'960);  // beyond 32 bits
static_assert(std::is_same_v<Matrix::element_type, float>);
static_assert(std::is_same_v<decltype(std::declval<tide::TensorView<const float, 2>>()(0)), const float&>);
static_assert(sizeof(Matrix) == sizeof(float*) && std::is_trivially_copyable_v<Matrix>);

constexpr int numbers[6] = {0, 1, 2, 10, 11, 12};
static_assert(tide::TensorView<const int, 2, 3>(numbers)(1, 2) == 12);
static_assert(tide::TensorView<const int, 2, 3>(numbers).at(1, 2) == 12);

TEST_CASE("TensorView: elements lie row by row, and writing through the view writes to the storage") {
  std::vector<float> storage(24);
  std::iota(storage.begin(), storage.end(), 0.0F);
  const tide::TensorView<float, 2, 3, 4> view(storage.data());
  float expected = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) CHECK(view(i, j, k) == expected++);
    }
  }
  view(1, 2, 3) = -1;
  CHECK(storage.back() == -1);
  CHECK(view.data() == storage.data());
  CHECK(view.elements().size() == 24);
}

TEST_CASE("TensorView: at checks each index, and says which is outside") {
  std::vector<float> storage(6);
  std::iota(storage.begin(), storage.end(), 0.0F);
  const Matrix view(storage.data());
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) CHECK(&view.at(i, j) == &view(i, j));
  }
  const std::string rule = "tide::TensorView: an index must be inside of its extent; ";
  CHECK(tide_test::text_of([&] { static_cast<void>(view.at(2, 0)); }) == rule + "index 0 is 2 of 2.");
  CHECK(tide_test::text_of([&] { static_cast<void>(view.at(0, 3)); }) == rule + "index 1 is 3 of 3.");
  CHECK(tide_test::text_of([&] { static_cast<void>(view.at(-1, 0)); }) == rule + "index 0 is -1 of 2.");
  CHECK(tide_test::text_of([&] { static_cast<void>(view.at(1U, ~std::uint64_t{0})); }) == rule + "index 1 is -1 of 3.");
  const tide::TensorView<float, 4, 0> empty(nullptr);
  CHECK(tide_test::text_of([&] { static_cast<void>(empty.at(0, 0)); }) == rule + "index 1 is 0 of 0.");
}

}  // namespace
