// SPDX-License-Identifier: Apache-2.0
//
// A mesh as programs and files spell it: NODESxRANKS, "2x8".

#pragma once

#include "args.hpp"

#include <tide/layout/mesh.hpp>

#include <optional>
#include <string_view>

namespace tide_example {

/// The mesh, or nothing where the text is no mesh or a size is above its limit.
[[nodiscard]] inline std::optional<tide::MeshShape> parse_mesh(std::string_view text, tide::index_t most_nodes,
                                                               tide::index_t most_ranks_per_node) {
  const std::size_t x = text.find('x');
  if (x == std::string_view::npos) return std::nullopt;
  const auto nodes = parse_number<tide::index_t>(text.substr(0, x), 1, most_nodes);
  const auto ranks = parse_number<tide::index_t>(text.substr(x + 1), 1, most_ranks_per_node);
  if (!nodes || !ranks) return std::nullopt;
  return tide::MeshShape{*nodes, *ranks};
}

}  // namespace tide_example
