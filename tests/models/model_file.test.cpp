// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/model_files.hpp"
#include "support/raised.hpp"

namespace {

using tide::Element;
using tide_example::parse_model;

TEST_CASE("model file: everything that it may say arrives in the group") {
  const auto model = parse_model(R"({"model": "tiny", "source": ["ignored"], "groups": [
    {"name": "embed", "params": [{"name": "embed.weight", "shape": [100, 8], "dtype": "bf16"}]},
    {"name": "layers.0", "repeat": 4, "index_from": 0, "params": [
      {"name": "layers.0.w", "shape": [64, 48], "dtype": "bf16", "checkpoint_dtype": "f32"},
      {"name": "layers.0.v", "shape": [48, 64], "dtype": "f8_e4m3", "gradient": "f32", "shard_dim": 1},
      {"name": "layers.0.b", "shape": [7], "dtype": "f16", "rows": [3, 0, 4]}],
     "aliases": [{"name": "layers.0.tied", "target": "layers.0.w"}]}]})",
                                 "tiny.json");
  CHECK(model.name == "tiny");
  REQUIRE(model.units.size() == 2);
  CHECK(model.units[0].repeat == 1);
  CHECK(model.units[1].name == "layers.0");
  CHECK(model.units[1].repeat == 4);

  const tide::GroupView group = model.units[1].parameters.view();
  REQUIRE(group.size() == 3);
  CHECK(group.parameters[0].name.str() == "layers.0.w");
  CHECK(group.parameters[0].shape.rank == 2);
  CHECK(group.parameters[0].shape[1] == 48);
  CHECK(group.parameters[0].gathered == Element::bf16);
  CHECK(group.parameters[0].gradient == Element::bf16);
  CHECK(group.parameters[1].gathered == Element::f8_e4m3);
  CHECK(group.parameters[1].gradient == Element::f32);
  CHECK(group.parameters[1].sharding.dimension == 1);
  CHECK(group.parameters[2].sharding.kind == tide::Sharding::Kind::ragged);
  CHECK(group.parameters[2].sharding.rows_of_rank[2] == 4);
  CHECK(group.find("layers.0.tied") == tide::ParameterIndex{0});
}

TEST_CASE("model file: a model without a name has that of its file") {
  const std::string groups = R"("groups": [{"name": "g", "params": [{"name": "w", "shape": [4], "dtype": "bf16"}]}]})";
  CHECK(parse_model("{" + groups, "folder/small.v2.json").name == "small.v2");
  CHECK(parse_model(R"({"model": "Small", )" + groups, "folder/small.v2.json").name == "Small");
}

TEST_CASE("model file: of the names of one tensor those that no group lists are aliases of the one that is") {
  const auto tied = [](const std::string& names) {
    return parse_model(R"({"model": "m", "groups": [
      {"name": "root", "params": [{"name": "wte", "shape": [8, 4], "dtype": "bf16"}]},
      {"name": "h.0", "params": [{"name": "h.0.w", "shape": [4, 4], "dtype": "bf16"}]}], "tied": )" +
                           names + "}",
                       "m.json");
  };
  const auto model = tied(R"([["head", "wte", "tail"]])");
  const tide::GroupView root = model.units[0].parameters.view();
  REQUIRE(root.size() == 1);
  CHECK(root.find("head") == tide::ParameterIndex{0});
  CHECK(root.find("tail") == tide::ParameterIndex{0});
  CHECK(!model.units[1].parameters.view().find("head"));
  CHECK(tied("[]").units[0].parameters.view().aliases.empty());

  const auto said = [&](const std::string& names) { return tide_test::text_of([&] { tied(names); }); };
  CHECK(said(R"([["head", "tail"]])") == "'m.json': 'tied': a group must list one of 'head', 'tail'");
  CHECK(said(R"([["wte", "h.0.w"]])") ==
        "'m.json': 'tied': group 'root' lists 'wte' and group 'h.0' lists 'h.0.w'; one of them must list one");
  CHECK(said(R"([["wte", "wte"]])") == "'m.json': 'tied': 'wte' is there twice in one list");
  CHECK(said(R"([["wte", "head", "tail", "head"]])") == "'m.json': 'tied': 'head' is there twice in one list");
  CHECK(said(R"([["", "wte"]])") == R"('m.json': 'tied' must hold lists of two names or more, not ["","wte"])");
  CHECK(said(R"([["a", "wte"], ["a", "h.0.w"]])") ==
        "'m.json': 'tied': 'a' would be a name of 'h.0.w' in group 'h.0', and is one of 'wte' in group 'root'");
  CHECK(tied(R"([["a", "wte"], ["a", "b", "wte"]])").units[0].parameters.view().aliases.size() == 2);
  CHECK(said(R"([["wte"]])") == R"('m.json': 'tied' must hold lists of two names or more, not ["wte"])");
  CHECK(said(R"([3])") == "'m.json': 'tied' must hold lists of two names or more, not 3");
  CHECK(said(R"(3)") == "'m.json': 'tied' must be an array, not 3");
}

/// What is said of a model whose only parameter is that text.
std::string said_of(const std::string& parameter) {
  return tide_test::text_of(
      [&] { parse_model(R"({"model": "m", "groups": [{"name": "g", "params": [)" + parameter + "]}]}", "m.json"); });
}

TEST_CASE("model file: a parameter that is wrong is named, with its group and its file") {
  CHECK(said_of(R"({"name": "w", "shape": [4], "dtype": "bf16"})").empty());
  CHECK(said_of(R"({"name": "w", "shape": [0, 4], "dtype": "bf16"})").empty());

  CHECK(said_of(R"({"name": "w", "dtype": "bf16"})") ==
        "'m.json': group 'g': parameter 'w': the key 'shape' is missing");
  CHECK(said_of(R"({"shape": [4], "dtype": "bf16"})") ==
        "'m.json': group 'g': parameter 'number 0': the key 'name' is missing");
  CHECK(said_of(R"({"name": "w", "shape": [4]})") == "'m.json': group 'g': parameter 'w': the key 'dtype' is missing");
  CHECK(said_of(R"({"name": 5, "shape": [4], "dtype": "bf16"})") ==
        "'m.json': group 'g': parameter 'number 0': 'name' must be text, not 5");
  CHECK(said_of(R"({"name": "", "shape": [4], "dtype": "bf16"})") ==
        "'m.json': group 'g': parameter 'number 0': 'name' must be text, not \"\"");
  CHECK(said_of("[]") == "'m.json': group 'g': parameter 'number 0': an object with 'name' is expected, not []");

  for (const std::string dtype : {"bfloat16", "BF16", "int8", ""}) {
    const std::string text = said_of(R"({"name": "w", "shape": [4], "dtype": ")" + dtype + "\"}");
    CHECK(text.find("'m.json': group 'g': parameter 'w': 'dtype' must be ") == 0);
  }
  CHECK(said_of(R"({"name": "w", "shape": [4], "dtype": "bf16", "gradient": "f31"})") ==
        "'m.json': group 'g': parameter 'w': 'gradient' must be bf16, f16, f32, f64, f8_e4m3 or f8_e5m2, not 'f31'");

  for (const std::string extent : {"4.0", "1e3", "\"4\"", "null", "[4]", "true", "9223372036854775808", "1e30",
                                   "-9223372036854775809", "18446744073709551616"}) {
    CAPTURE(extent);
    const std::string text = said_of(R"({"name": "w", "shape": [4, )" + extent + R"(], "dtype": "bf16"})");
    CHECK(text.find("'m.json': group 'g': parameter 'w': 'shape' must hold integers of up to 64 bits, not ") == 0);
  }
  CHECK(said_of(R"({"name": "w", "shape": 4, "dtype": "bf16"})") ==
        "'m.json': group 'g': parameter 'w': 'shape' must be an array, not 4");

  for (const std::string dimension : {"-1", "8", "1.5", "\"0\"", "4294967296"}) {
    CAPTURE(dimension);
    CHECK(said_of(R"({"name": "w", "shape": [4], "dtype": "bf16", "shard_dim": )" + dimension + "}") ==
          "'m.json': group 'g': parameter 'w': 'shard_dim' must be an integer from 0 to 7, not " + dimension);
  }
  CHECK(said_of(R"({"name": "w", "shape": [4], "dtype": "bf16", "rows": []})") ==
        "'m.json': group 'g': parameter 'w': 'rows' has no entries");
  CHECK(said_of(R"({"name": "w", "shape": [4, 4], "dtype": "bf16", "rows": [4], "shard_dim": 1})") ==
        "'m.json': group 'g': parameter 'w': 'rows' count along dimension 0; leave out 'shard_dim'");
}

TEST_CASE("model file: a key that nobody reads is an error, where it would change the layout in silence") {
  CHECK(
      said_of(R"({"name": "w", "shape": [4, 4], "dtype": "bf16", "sharddim": 1})") ==
      "'m.json': group 'g': parameter 'w': unknown key 'sharddim'; there are name, shape, dtype, gradient, shard_dim, "
      "rows");
  const auto said = [](const std::string& beside_params, const std::string& beside_groups) {
    return tide_test::text_of([&] {
      parse_model(
          R"({"model": "m", "groups": [{"name": "g", "params": [{"name": "w", "shape": [4], "dtype": "bf16"}])" +
              beside_params + "}]" + beside_groups + "}",
          "m.json");
    });
  };
  CHECK(said("", "").empty());
  CHECK(said("", R"(, "notes": "as trained in May")").empty());
  CHECK(said(R"(, "repeats": 4)", "") ==
        "'m.json': group 'g': unknown key 'repeats'; there are name, repeat, params, aliases");
  CHECK(said(R"(, "tied": [["w", "v"]])", "") ==
        "'m.json': group 'g': unknown key 'tied'; there are name, repeat, params, aliases");
  CHECK(said(R"(, "aliases": [{"name": "v", "target": "w", "of": "w"}])", "") ==
        "'m.json': group 'g': unknown key 'of'; there are name, target");
  CHECK(said("", R"(, "aliases": [])") == "'m.json': 'aliases' is a key of a group, not of the model");
}

TEST_CASE("model file: a rule of layouts is broken in the words of the compile error") {
  const auto error = [](const std::string& parameters, const std::string& rest = "") {
    return tide_test::raised([&] {
      parse_model(R"({"model": "m", "groups": [{"name": "g", "params": [)" + parameters + "]" + rest + "}]}", "m.json");
    });
  };
  const std::string good = R"({"name": "w", "shape": [4], "dtype": "bf16"})";

  auto found = error(good + "," + good);
  REQUIRE(found.has_value());
  CHECK(found->code() == tide::Errc::layout);
  CHECK(found->what() == std::string("'m.json': group 'g': tide::ShardLayout: names in a group must differ; declare a "
                                     "tied weight with tide::alias. Parameter 'w'."));
  found = error(R"({"name": "w", "shape": [4, -2], "dtype": "bf16"})");
  REQUIRE(found.has_value());
  CHECK(found->what() ==
        std::string("'m.json': group 'g': tide::ShardLayout: extents must not be negative. Parameter 'w'."));
  found = error(R"({"name": "w", "shape": [], "dtype": "bf16"})");
  REQUIRE(found.has_value());
  CHECK(found->what() ==
        std::string("'m.json': group 'g': tide::ShardLayout: a parameter needs at least one dimension; "
                    "give a scalar the shape {1}. Parameter 'w'."));
  found = error(R"({"name": "w", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 1], "dtype": "bf16"})");
  REQUIRE(found.has_value());
  CHECK(found->code() == tide::Errc::layout);
  found = error(R"({"name": "w", "shape": [4294967296, 4294967296], "dtype": "bf16"})");
  REQUIRE(found.has_value());
  CHECK(found->what() == std::string("'m.json': group 'g': tide::ShardLayout: a group must have fewer than 2^44 "
                                     "elements. Parameter 'w'."));
  found = error(R"({"name": "w", "shape": [4], "dtype": "bf16", "shard_dim": 1})");
  REQUIRE(found.has_value());
  CHECK(found->code() == tide::Errc::layout);
  found = error("");
  REQUIRE(found.has_value());
  CHECK(found->what() == std::string("'m.json': group 'g': tide::ShardLayout: a group needs at least one parameter."));
  found = error(good, R"(, "aliases": [{"name": "tied", "target": "v"}])");
  REQUIRE(found.has_value());
  CHECK(found->what() == std::string("'m.json': group 'g': tide::ShardLayout: the target of an alias must be a "
                                     "parameter of the group. Alias 'tied'."));
}

TEST_CASE("model file: text that is no model is refused, and named") {
  const auto text = [](const std::string& document) {
    const auto error = tide_test::raised([&] { parse_model(document, "m.json"); });
    REQUIRE(error.has_value());
    CHECK(error->code() == tide::Errc::argument);
    return std::string(error->what());
  };
  for (const std::string document :
       {"", "{", "{]", "hello", "{\"model\": \"m\", \"groups\": [}", "\xff\xfe", "{} {}"}) {
    CAPTURE(document);
    CHECK(text(document).find("'m.json': this is not JSON: ") == 0);
  }
  CHECK(text("[]") == "'m.json': an object with 'groups' is expected, not []");
  CHECK(text("{}") == "'m.json': the key 'groups' is missing");
  CHECK(text(R"({"model": "m"})") == "'m.json': the key 'groups' is missing");
  CHECK(text(R"({"model": "m", "groups": {}})") == "'m.json': 'groups' must be an array, not {}");
  CHECK(text(R"({"model": 3, "groups": []})") == "'m.json': 'model' must be text, not 3");
  CHECK(text(R"({"model": "m", "groups": []})") == "'m.json': 'groups' has no entries");
  CHECK(text(R"({"model": "m", "groups": [[]]})") ==
        "'m.json': group 'number 0': an object with 'name' is expected, not []");
  CHECK(text(R"({"model": "m", "groups": [{"name": "g"}]})") == "'m.json': group 'g': the key 'params' is missing");
  for (const std::string repeat : {"0", "-1", "1000001", "2.5", "\"3\"", "null"}) {
    CAPTURE(repeat);
    CHECK(text(R"({"model": "m", "groups": [{"name": "g", "repeat": )" + repeat + R"(, "params": []}]})") ==
          "'m.json': group 'g': 'repeat' must be an integer from 1 to 1000000, not " + repeat);
  }
  const std::string parameter = R"({"name": "w", "shape": [4], "dtype": "bf16"})";
  const std::string group = R"({"name": "g", "params": [)" + parameter + "]}";
  CHECK(text(R"({"model": "m", "groups": [)" + group + "," + group + "]}") ==
        "'m.json': group 'g': two groups have this name");
  CHECK(text(R"({"model": "m", "model": "n", "groups": [)" + group + "]}") ==
        "'m.json': the key \"model\" is there twice in one object");
  CHECK(text(R"({"model": "m", "groups": [{"name": "g", "params": [], "aliases": [3]}]})") ==
        "'m.json': group 'g': an object with 'name' is expected, not 3");

  const std::string deep(100'000, '[');
  CHECK(text(deep).size() < 1000);
  CHECK(text("{\"groups\": [], \"model\": [" + std::string(500, '1') + "]}").size() < 200);
}

TEST_CASE("model file: a file that cannot be read is named") {
  const auto error = tide_test::raised([] { tide_example::read_model_file("/nowhere/model.json"); });
  REQUIRE(error.has_value());
  CHECK(error->code() == tide::Errc::argument);
  CHECK(std::string(error->what()).find("/nowhere/model.json") != std::string::npos);
  CHECK(tide_test::text_of([] { tide_example::read_model_file(TIDE_TESTS_DIR "/data"); }).find("/data") !=
        std::string::npos);
}

}  // namespace
