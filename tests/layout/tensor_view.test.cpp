// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/tensor_view.hpp>

#include <numeric>
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

}  // namespace
