// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../../examples/support/args.hpp"
#include "../../examples/support/program.hpp"

namespace {

using tide_example::Args;
using tide_example::UsageError;

// A command line, with the program's name in front.
struct Line {
  explicit Line(std::vector<std::string> given) : words(std::move(given)) {
    words.insert(words.begin(), "program");
    for (std::string& word : words) pointers.push_back(word.data());
  }
  Args args() {
    return {count(), pointers.data(), {{"--model", Args::value}, {"--ranks", Args::value}, {"--all", Args::alone}}};
  }
  int count() const { return static_cast<int>(pointers.size()); }

  std::vector<std::string> words;
  std::vector<char*> pointers;
};

Args args(std::vector<std::string> words) { return Line(std::move(words)).args(); }

TEST_CASE("Args: flags, their values, and words, in any order") {
  const Args read = args({"--ranks", "4", "verify", "--all", "--model", "-", "more"});
  CHECK(read.words() == std::vector<std::string>{"verify", "more"});
  CHECK(read.has("--all"));
  CHECK(read.text("--model") == "-");
  CHECK(read.number("--ranks", 1, 1, 64) == 4);
  const Args none = args({});
  CHECK(none.words().empty());
  CHECK_FALSE(none.has("--all"));
  CHECK_FALSE(none.text("--model").has_value());
  CHECK(none.text("--model", "small") == "small");
  CHECK(none.number("--ranks", 7, 1, 64) == 7);
  CHECK(none.choice("--model", {"first", "second"}) == 0);
}

TEST_CASE("Args: what is not understood is refused, by name") {
  CHECK_THROWS_WITH_AS(args({"--modle", "x"}), "unknown flag '--modle'", UsageError);
  CHECK_THROWS_WITH_AS(args({"-m"}), "unknown flag '-m'", UsageError);
  CHECK_THROWS_WITH_AS(args({"--model"}), doctest::Contains("--model needs a value"), UsageError);
  CHECK_THROWS_WITH_AS(args({"--model", "--all"}), doctest::Contains("--model needs a value"), UsageError);
  CHECK_THROWS_WITH_AS(args({"--model", ""}), "--model needs a value", UsageError);
  CHECK_THROWS_WITH_AS(args({"--model="}), "--model needs a value", UsageError);
  CHECK_THROWS_WITH_AS(args({"--all=yes"}), "--all takes no value", UsageError);
  CHECK_THROWS_WITH_AS(args({"--modle=x"}), "unknown flag '--modle'", UsageError);
  CHECK_THROWS_WITH_AS(args({"--model", "a", "--model=a"}), "--model is given twice", UsageError);
  CHECK_THROWS_WITH_AS(args({"--all", "--all"}), "--all is given twice", UsageError);
  CHECK_THROWS_WITH_AS(args({"--model", "a", "--model", "a"}), "--model is given twice", UsageError);
}

TEST_CASE("Args: a value may stand behind '=', and begin with anything there") {
  const Args read = args({"--model=--all", "--ranks=4", "=", "a=b"});
  CHECK(read.text("--model") == "--all");
  CHECK(read.number("--ranks", 1, 1, 64) == 4);
  CHECK_FALSE(read.has("--all"));
  CHECK(read.words() == std::vector<std::string>{"=", "a=b"});
  CHECK(args({"--model=a=b"}).text("--model") == "a=b");
}

TEST_CASE("Args: a number is a whole one, in its range, and nothing else") {
  for (const char* bad : {"4x", "x4", "4.0", "1e1", "+4", " 4", "4 ", "0", "65", "-1", "99999999999999999999"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH_AS((void)args({"--ranks", bad}).number("--ranks", 1, 1, 64),
                         doctest::Contains("--ranks takes a whole number from 1 to 64"), UsageError);
  }
}

TEST_CASE("Args: a choice is one of its names") {
  CHECK(args({"--model", "second"}).choice("--model", {"first", "second"}) == 1);
  CHECK_THROWS_WITH_AS((void)args({"--model", "third"}).choice("--model", {"first", "second"}),
                       "--model takes one of first, second, not 'third'", UsageError);
}

TEST_CASE("run_program: what went wrong decides the exit code") {
  const auto code = [](auto body, std::vector<std::string> words = {}) {
    Line line(std::move(words));
    return tide_example::run_program(line.count(), line.pointers.data(), "program\n", body);
  };
  CHECK(code([] { return 0; }) == 0);
  CHECK(code([] { return 1; }) == 1);
  CHECK(code([]() -> int { throw UsageError("no"); }) == 2);
  CHECK(code([]() -> int { throw std::runtime_error("no"); }) == 3);
  CHECK(code([]() -> int { throw std::bad_alloc(); }) == 3);
  CHECK(code([]() -> int { throw 1; }) == 3);
  CHECK(code([] { return 1; }, {"--help"}) == 0);
}

}  // namespace
