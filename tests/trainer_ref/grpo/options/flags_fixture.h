// Flags as given on a command line.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include <bascule/trainer_ref/grpo/options/parse_train_flags.h>
#include <bascule/trainer_ref/grpo/options/resume.h>
#include <bascule/transport/program/flags.h>

namespace bascule::ref {

class TrainFlagsTest : public ::testing::Test {
 protected:
  // The flags that every run needs, and `more`.
  static absl::StatusOr<TrainFlags> flags_with(std::vector<const char*> more) {
    std::vector<const char*> words{"--model=m", "--out=o", "--engines=http://a:1,http://b:2/", "--sync=shm:///s"};
    words.insert(words.end(), more.begin(), more.end());
    const absl::StatusOr<ParsedFlags> parsed = parse_flags(words);
    if (!parsed.ok()) return parsed.status();
    return parse_train_flags();
  }
  static std::string refusal(std::vector<const char*> more) {
    const absl::FlagSaver one_at_a_time;
    const absl::StatusOr<TrainFlags> flags = flags_with(std::move(more));
    return std::string((flags.ok() ? read_start(*flags).status() : flags.status()).message());
  }

 private:
  absl::FlagSaver saver_;
};

}  // namespace bascule::ref
