// A rollout with the fields that rewards read: its text, and why it ended.
#pragma once

#include <string>
#include <utility>

#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

inline Rollout finished_rollout(std::string text, std::string finish_reason = "stop") {
  Rollout result;
  result.text = std::move(text);
  result.finish_reason = std::move(finish_reason);
  return result;
}

}  // namespace bascule::ref
