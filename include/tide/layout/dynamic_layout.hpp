// SPDX-License-Identifier: Apache-2.0
//
// DynamicGroup and DynamicLayout: the run-time door: a group read from a file, laid out by the same functions and
// refused in the same words as `ShardLayout`.
//
// Laws: those of LayoutView                          (tests/layout/dynamic_layout.test.cpp)

#pragma once

#include <tide/layout/coalesce.hpp>
#include <tide/layout/detail/start_tables.hpp>  // StartTables
#include <tide/layout/layout_rules.hpp>         // require
#include <tide/layout/layout_view.hpp>          // LayoutView

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tide {

/// A group that is put together at run time. Owns its names and shapes; copies share them until one of them grows.
class DynamicGroup {
 public:
  /// Appends a parameter.
  /// @param extents       row-major; rules are checked when the group is laid out, not here
  /// @param rows_of_rank  ragged row counts of dimension 0, one per rank; empty for the rule in `sharding`
  /// @throws Error (Errc::layout) for ragged rows of another dimension, or beside a rule
  void add(std::string name, const std::vector<index_t>& extents, Element gathered, Element gradient,
           Sharding sharding = {}, std::vector<index_t> rows_of_rank = {}) {
    if (!rows_of_rank.empty() && sharding.dimension != 0) {
      raise(Errc::layout, detail::text({"tide::DynamicGroup: ragged rows count along dimension 0; the sharding of '",
                                        detail::printable(name), "' says dimension ", sharding.dimension, "."}));
    }
    if (!rows_of_rank.empty() && sharding.kind == Sharding::Kind::ruled) {
      raise(Errc::layout, detail::text({"tide::DynamicGroup: a parameter is cut by a rule or by ragged rows, not by "
                                        "both; '",
                                        detail::printable(name), "' has both."}));
    }
    if (rows_of_rank.empty() && sharding.kind == Sharding::Kind::ragged) {
      rows_of_rank.assign(sharding.rows_of_rank.begin(), sharding.rows_of_rank.end());
    }
    detach();
    Parameter parameter;
    parameter.name.text = keep(std::move(name));
    parameter.shape.rank = static_cast<int>(extents.size());
    for (std::size_t i = 0; i < extents.size() && i < parameter.shape.extents.size(); ++i) {
      parameter.shape.extents[i] = extents[i];
    }
    parameter.gathered = gathered;
    parameter.gradient = gradient;
    parameter.sharding = sharding;
    if (!rows_of_rank.empty()) {
      storage_->rows.push_back(std::move(rows_of_rank));
      parameter.sharding = {Sharding::Kind::ragged, sharding.dimension, nullptr, storage_->rows.back()};
    }
    storage_->parameters.push_back(parameter);
  }

  /// Declares that `name` is tied to the parameter `target`.
  void add_alias(std::string name, std::string target) {
    detach();
    const std::string_view kept = keep(std::move(name));
    storage_->aliases.push_back({kept, keep(std::move(target))});
  }

  /// Valid until the group grows or is destroyed; a layout made from the group keeps its own copy.
  [[nodiscard]] GroupView view() const noexcept { return {storage_->parameters, storage_->aliases}; }

 private:
  friend class DynamicLayout;

  struct Storage {
    std::vector<Parameter> parameters;
    std::vector<Alias> aliases;
    std::deque<std::string> names;          // a deque: views of its strings stay valid as it grows
    std::deque<std::vector<index_t>> rows;  // likewise
    std::unique_ptr<const detail::StartTables> tables = std::make_unique<const detail::StartTables>(parameters);
  };

  std::string_view keep(std::string text) { return storage_->names.emplace_back(std::move(text)); }

  // Before a change: what a layout or another copy holds must not change with it.
  void detach() {
    if (storage_.use_count() == 1) {
      storage_->tables = std::make_unique<const detail::StartTables>(storage_->parameters);
      return;
    }
    const std::shared_ptr<const Storage> shared = std::exchange(storage_, std::make_shared<Storage>());
    for (Parameter parameter : shared->parameters) {
      parameter.name.text = keep(std::string(parameter.name.text));
      if (const auto rows = parameter.sharding.rows_of_rank; !rows.empty()) {
        parameter.sharding.rows_of_rank = storage_->rows.emplace_back(rows.begin(), rows.end());
      }
      storage_->parameters.push_back(parameter);
    }
    for (const Alias& tied : shared->aliases) {
      storage_->aliases.push_back({keep(std::string(tied.name)), keep(std::string(tied.target))});
    }
  }

  std::shared_ptr<Storage> storage_ = std::make_shared<Storage>();
};

/// A group laid out at run time.
class DynamicLayout {
 public:
  /// @throws Error (Errc::layout) with the sentence of the first rule that a size or the group breaks, naming the
  ///         parameter
  DynamicLayout(DynamicGroup group, MeshShape mesh, PackingRule packing = TightPacking::rule,
                index_t storage_alignment = 256)
      : group_(std::move(group)),
        mesh_(Mesh<dynamic, dynamic>(mesh.nodes, mesh.ranks_per_node).shape()),
        packing_(packing),
        storage_alignment_(storage_alignment) {
    if (!is_alignment(packing.start_alignment)) {
      raise(Errc::layout, "tide::ShardLayout: the start_alignment of Pack must be a power of two, at most 1 GiB.");
    }
    if (!is_alignment(storage_alignment) || storage_alignment < 16) {
      raise(Errc::layout, "tide::DenseStorage: the alignment must be a power of two from 16 bytes to 1 GiB.");
    }
    require(group_.view(), mesh_.ranks());
  }

  [[nodiscard]] MeshShape mesh() const noexcept { return mesh_; }
  [[nodiscard]] LayoutView view() const noexcept {
    return {group_.view(), mesh_, packing_, storage_alignment_, group_.storage_->tables.get()};
  }

 private:
  DynamicGroup group_;
  MeshShape mesh_;
  PackingRule packing_;
  index_t storage_alignment_;
};

}  // namespace tide
