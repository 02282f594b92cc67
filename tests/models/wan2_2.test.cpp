// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/layout/shard_layout.hpp>
#include <tide/models/wan2_2.hpp>

#include <type_traits>

namespace {

namespace models = tide::models;
using tide::Mesh;
using tide::ShardLayout;
using tide::TensorView;

static_assert(models::wan2_2_t2v_a14b::model.elements() == 14'288'491'584);
static_assert(models::wan2_2_ti2v_5b::model.elements() == 4'999'787'712);

using WanRoot = ShardLayout<models::wan2_2_t2v_a14b::root, Mesh<1, 8>>;
static_assert(std::is_same_v<WanRoot::tensor<"patch_embedding.weight">, TensorView<tide::bf16, 5120, 16, 1, 2, 2>>);
using WanBlock = ShardLayout<models::wan2_2_ti2v_5b::block, Mesh<1, 8>>;
static_assert(std::is_same_v<WanBlock::tensor<"modulation">, TensorView<tide::bf16, 1, 6, 3072>>);
static_assert(WanBlock().view().piece(WanBlock::index<"modulation">(), tide::Rank{1}).elements() ==
              0);  // one row, 8 ranks

}  // namespace
