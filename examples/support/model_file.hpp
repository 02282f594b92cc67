// SPDX-License-Identifier: Apache-2.0
//
// Reads the parameter list of a model from a JSON file:
//
//   {"model": "tiny", "groups": [
//     {"name": "layers.0", "repeat": 4, "params": [
//       {"name": "layers.0.w", "shape": [64, 48], "dtype": "bf16"},
//       {"name": "layers.0.v", "shape": [48, 64], "dtype": "bf16", "gradient": "f32", "shard_dim": 1},
//       {"name": "layers.0.b", "shape": [7], "dtype": "f32", "rows": [3, 0, 4]}],
//      "aliases": [{"name": "layers.0.tied", "target": "layers.0.w"}]}],
//    "tied": [["head.weight", "layers.0.v"]]}
//
// `model` may be missing: then the file's name is the model's. `repeat` says how many such groups the model has, one if
// it is missing; their names count up from the first one's.
// `gradient` is the element of the gradient, if not `dtype`; `rows` are ragged row counts, one per rank. `tied` lists
// the names of one tensor of which a group lists one; the others become its aliases there. Of the model's keys others
// are left alone; in a group, a parameter or an alias they are errors, so that a misspelt one changes nothing in
// silence. Whatever is wrong is one tide::Error that names the file, the group and the parameter.

#pragma once

#include "files.hpp"

#include <nlohmann/json.hpp>
#include <tide/layout/dynamic_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tide_example {

/// One group of a model file, which stands for `repeat` groups of the model.
struct FileUnit {
  std::string name;
  tide::index_t repeat = 1;
  tide::DynamicGroup parameters;  ///< with the names of the first repetition
};

/// A model whose groups keep the rules of layouts, whatever the mesh.
struct FileModel {
  std::string name;
  std::vector<FileUnit> units;
};

namespace detail {

class ModelReader {
 public:
  explicit ModelReader(std::string file) : file_(std::move(file)) {}

  FileModel read(const std::string& text) {
    const nlohmann::json document = parse(text);
    FileModel model;
    for (const char* key : {"params", "repeat", "aliases", "name"}) {
      if (document.contains(key)) fail("'" + std::string(key) + "' is a key of a group, not of the model");
    }
    const nlohmann::json& groups = array(document, "groups");
    model.name = document.contains("model") ? string(document, "model") : std::filesystem::path(file_).stem().string();
    std::set<std::string> names;
    for (const nlohmann::json& entry : groups) {
      group_ = "number " + std::to_string(model.units.size());
      group_ = string(entry, "name");
      if (!names.insert(group_).second) fail("two groups have this name");
      model.units.push_back(read_group(entry));
    }
    group_.clear();
    if (document.contains("tied")) {
      for (const nlohmann::json& names_of_one : array(document, "tied")) tie(strings(names_of_one, "tied"), model);
    }
    if (model.units.empty()) fail("'groups' has no entries");
    return model;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { tide::raise(tide::Errc::argument, place() + what); }

  // Where the reader is, as the beginning of a sentence.
  [[nodiscard]] std::string place() const {
    std::string text = "'" + file_ + "': ";
    if (!group_.empty()) text += "group '" + group_ + "': ";
    if (!parameter_.empty()) text += "parameter '" + parameter_ + "': ";
    return text;
  }

  nlohmann::json parse(const std::string& text) const {
    return parse_strictly(text, [&](const std::string& what) { fail(what); });
  }

  FileUnit read_group(const nlohmann::json& entry) {
    FileUnit read;
    read.name = group_;
    only(entry, {"name", "repeat", "params", "aliases"}, "index_from");
    if (entry.contains("repeat")) read.repeat = integer(entry, "repeat", 1, 1'000'000);
    tide::index_t number = 0;
    for (const nlohmann::json& parameter : array(entry, "params")) {
      parameter_ = "number " + std::to_string(number++);
      parameter_ = string(parameter, "name");
      read_parameter(parameter, read.parameters);
    }
    parameter_.clear();
    if (entry.contains("aliases")) {
      for (const nlohmann::json& tied : array(entry, "aliases")) {
        const std::string name = string(tied, "name");
        only(tied, {"name", "target"});
        read.parameters.add_alias(name, string(tied, "target"));
      }
    }
    const tide::GroupView view = read.parameters.view();
    if (const tide::LayoutFault fault = check(view); fault.rule != tide::LayoutRule::none) {
      tide::raise(tide::Errc::layout, place() + describe(fault, view));
    }
    return read;
  }

  // Makes the names of one tensor aliases of the one that is listed, in its group.
  void tie(const std::vector<std::string>& names, FileModel& model) const {
    const auto lists = [](const FileUnit& unit, const std::string& name) {
      const auto& all = unit.parameters.view().parameters;
      return std::any_of(all.begin(), all.end(), [&](const tide::Parameter& p) { return p.name.reads(name); });
    };
    std::set<std::string> once;
    for (const std::string& name : names) {
      if (!once.insert(name).second) fail("'tied': '" + name + "' is there twice in one list");
    }
    FileUnit* home = nullptr;
    const std::string* target = nullptr;
    for (FileUnit& unit : model.units) {
      for (const std::string& name : names) {
        if (!lists(unit, name)) continue;
        if (home != nullptr) {
          fail("'tied': group '" + home->name + "' lists '" + *target + "' and group '" + unit.name + "' lists '" +
               name + "'; one of them must list one");
        }
        home = &unit;
        target = &name;
      }
    }
    if (home == nullptr) {
      std::string list = "'" + names.front() + "'";
      for (std::size_t i = 1; i < names.size(); ++i) list += ", '" + names[i] + "'";
      fail("'tied': a group must list one of " + list);
    }
    for (const std::string& name : names) {
      for (const FileUnit& unit : model.units) {
        for (const tide::Alias& alias : unit.parameters.view().aliases) {
          if (alias.name == name && (&unit != home || alias.target != *target)) {
            fail("'tied': '" + name + "' would be a name of '" + *target + "' in group '" + home->name +
                 "', and is one of '" + std::string(alias.target) + "' in group '" + unit.name + "'");
          }
        }
      }
      if (!home->parameters.view().find(name)) home->parameters.add_alias(name, *target);
    }
    const tide::GroupView view = home->parameters.view();
    if (const tide::LayoutFault fault = check(view); fault.rule != tide::LayoutRule::none) {
      tide::raise(tide::Errc::layout, place() + "group '" + home->name + "': " + describe(fault, view));
    }
  }

  void read_parameter(const nlohmann::json& entry, tide::DynamicGroup& group) const {
    only(entry, {"name", "shape", "dtype", "gradient", "shard_dim", "rows"}, "checkpoint_dtype");
    std::vector<tide::index_t> shape = integers(entry, "shape");
    const tide::Element dtype = element(entry, "dtype");
    const tide::Element gradient = entry.contains("gradient") ? element(entry, "gradient") : dtype;
    tide::Sharding sharding;
    std::vector<tide::index_t> rows;
    if (entry.contains("shard_dim")) {
      sharding = tide::shard(static_cast<int>(integer(entry, "shard_dim", 0, tide::max_dimensions - 1)));
    }
    if (entry.contains("rows")) {
      rows = integers(entry, "rows");
      if (rows.empty()) fail("'rows' has no entries");
      if (sharding.dimension != 0) fail("'rows' count along dimension 0; leave out 'shard_dim'");
    }
    group.add(parameter_, shape, dtype, gradient, sharding, std::move(rows));
  }

  // ---- values: each is there and of its type, or the error says so

  // Refuses other keys than `keys` and `note`, which says where the numbers come from and changes nothing.
  void only(const nlohmann::json& object, std::initializer_list<const char*> keys, const char* note = nullptr) const {
    for (const auto& item : object.items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) != keys.end()) continue;
      if (note != nullptr && item.key() == note) continue;
      std::string known;
      for (const char* key : keys) known += (known.empty() ? "" : ", ") + std::string(key);
      fail("unknown key '" + cut(item.key(), 60) + "'; there are " + known);
    }
  }

  [[nodiscard]] const nlohmann::json& value(const nlohmann::json& object, const char* key) const {
    if (!object.is_object()) fail("an object with '" + std::string(key) + "' is expected, not " + shown(object));
    const auto found = object.find(key);
    if (found == object.end()) fail("the key '" + std::string(key) + "' is missing");
    return *found;
  }

  [[nodiscard]] const nlohmann::json& array(const nlohmann::json& object, const char* key) const {
    const nlohmann::json& found = value(object, key);
    if (!found.is_array()) fail("'" + std::string(key) + "' must be an array, not " + shown(found));
    return found;
  }

  [[nodiscard]] std::string string(const nlohmann::json& object, const char* key) const {
    const nlohmann::json& found = value(object, key);
    if (!found.is_string() || found.get_ref<const std::string&>().empty()) {
      fail("'" + std::string(key) + "' must be text, not " + shown(found));
    }
    return found.get<std::string>();
  }

  // At least two texts.
  [[nodiscard]] std::vector<std::string> strings(const nlohmann::json& list, const char* key) const {
    std::vector<std::string> texts;
    const auto is_name = [](const nlohmann::json& text) {
      return text.is_string() && !text.get_ref<const std::string&>().empty();
    };
    const bool all = list.is_array() && list.size() >= 2 && std::all_of(list.begin(), list.end(), is_name);
    if (!all) fail("'" + std::string(key) + "' must hold lists of two names or more, not " + shown(list));
    for (const nlohmann::json& text : list) texts.push_back(text.get<std::string>());
    return texts;
  }

  // A number as the library counts, or nothing where it is none.
  [[nodiscard]] static std::optional<tide::index_t> integer(const nlohmann::json& number) {
    const bool fits = number.is_number_unsigned() ? number.get<std::uint64_t>() <= std::uint64_t{INT64_MAX}
                                                  : number.is_number_integer();
    return fits ? std::optional(number.get<tide::index_t>()) : std::nullopt;
  }

  [[nodiscard]] tide::index_t integer(const nlohmann::json& object, const char* key, tide::index_t first,
                                      tide::index_t last) const {
    const std::optional<tide::index_t> number = integer(value(object, key));
    if (!number || *number < first || *number > last) {
      fail("'" + std::string(key) + "' must be an integer from " + std::to_string(first) + " to " +
           std::to_string(last) + ", not " + shown(value(object, key)));
    }
    return *number;
  }

  // Whether their sizes make sense is for the rules of layouts to say.
  [[nodiscard]] std::vector<tide::index_t> integers(const nlohmann::json& object, const char* key) const {
    std::vector<tide::index_t> list;
    for (const nlohmann::json& entry : array(object, key)) {
      const std::optional<tide::index_t> number = integer(entry);
      if (!number) fail("'" + std::string(key) + "' must hold integers of up to 64 bits, not " + shown(entry));
      list.push_back(*number);
    }
    return list;
  }

  [[nodiscard]] tide::Element element(const nlohmann::json& object, const char* key) const {
    const std::string text = string(object, key);
    const std::optional<tide::Element> parsed = tide::parse_element(text);
    if (!parsed) fail("'" + std::string(key) + "' must be bf16, f16, f32, f64, f8_e4m3 or f8_e5m2, not '" + text + "'");
    return *parsed;
  }

  // A value as the file spells it.
  [[nodiscard]] static std::string shown(const nlohmann::json& value) { return cut(value.dump(-1, ' ', true), 60); }

  // A text that may be as long as the file, as long as an error can bear.
  [[nodiscard]] static std::string cut(const std::string& text, std::size_t most) {
    return text.size() <= most ? text : text.substr(0, most) + "...";
  }

  std::string file_;
  std::string group_;
  std::string parameter_;
};

}  // namespace detail

/// Reads a model from text; `file` is what errors call it.
/// @throws tide::Error (Errc::argument) when the text is not a model, (Errc::layout) when a group breaks a rule
inline FileModel parse_model(const std::string& text, const std::string& file) {
  return detail::ModelReader(file).read(text);
}

/// Reads a model file.
/// @throws tide::Error as above, and (Errc::argument) when the file cannot be read
inline FileModel read_model_file(const std::string& path) { return parse_model(read_file(path), path); }

}  // namespace tide_example
