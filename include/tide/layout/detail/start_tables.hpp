// SPDX-License-Identifier: Apache-2.0
//
// Where the pieces of a rank start, remembered: one walk over the parameters for each rank that is asked about, instead
// of one for each parameter.

#pragma once

#include <tide/layout/layout_view.hpp>  // LayoutView

#include <array>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace tide::detail {

// The tables of one group, whatever its mesh and packing. Ranks that are threads may ask at the same time. A view that
// was made to show another group is walked.
class StartTables final : public PieceSource {
 public:
  // @param parameters  of the group; it may still grow, before the first question
  explicit StartTables(const std::vector<Parameter>& parameters)
      : PieceSource{&StartTables::find}, parameters_(parameters) {}

 private:
  using Starts = std::array<index_t, buffer_count>;
  using Key = std::tuple<index_t, index_t, PackingRule::Padding, index_t, index_t>;

  [[nodiscard]] static Piece find(const PieceSource& source, const LayoutView& layout, ParameterIndex parameter,
                                  Rank rank) {
    const auto& tables = static_cast<const StartTables&>(source);
    const auto& shown = layout.group.parameters;
    if (shown.data() != tables.parameters_.data() || shown.size() != tables.parameters_.size()) {
      LayoutView walked = layout;
      walked.remembers = nullptr;
      return walked.piece(parameter, rank);
    }
    Starts end = tables.ends(layout, rank)[static_cast<std::size_t>(parameter.value)];
    return next_piece(layout.group, parameter.value, layout.mesh.ranks(), layout.packing, layout.storage_alignment,
                      rank, end);
  }

  // Where the buffers end before each parameter. What a map holds stays where it is.
  [[nodiscard]] const std::vector<Starts>& ends(const LayoutView& layout, Rank rank) const {
    const Key key{layout.mesh.ranks(), layout.packing.start_alignment, layout.packing.padding, layout.storage_alignment,
                  rank.value};
    const std::lock_guard lock(mutex_);
    std::vector<Starts>& table = tables_[key];
    if (table.empty()) {
      Starts end{};
      for (index_t i = 0; i < layout.group.size(); ++i) {
        table.push_back(end);
        static_cast<void>(
            next_piece(layout.group, i, layout.mesh.ranks(), layout.packing, layout.storage_alignment, rank, end));
      }
    }
    return table;
  }

  const std::vector<Parameter>& parameters_;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::vector<Starts>> tables_;
};

}  // namespace tide::detail
