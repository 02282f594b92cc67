// SPDX-License-Identifier: Apache-2.0
//
// labels: static

#include <doctest/doctest.h>

#include <tide/layout/shard_layout.hpp>
#include <tide/models/gpt2.hpp>

#include <type_traits>

namespace {

static_assert(tide::models::gpt2::model.elements() == 124'439'808, "as published");

using Gpt2Root = tide::ShardLayout<tide::models::gpt2::root, tide::Mesh<1, 8>>;
static_assert(std::is_same_v<Gpt2Root::tensor<"lm_head.weight">, tide::TensorView<tide::bf16, 50257, 768>>);
static_assert(Gpt2Root::index<"lm_head.weight">() == Gpt2Root::index<"transformer.wte.weight">(), "one storage");

}  // namespace
