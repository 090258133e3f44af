// The policy with which a run starts, read from the folders that its flags name.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/options/resume.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>

namespace bascule::ref {

// Reads the policy of a new or resumed run: all weights, to be trained; or the frozen base model with an adapter.
// Errors are attributed to the flag that named the folder. NOT_FOUND if the folder of --model has no weights. `log` as
// in read_weights(). CANCELLED if `stopped` returns true while a base is awaited.
absl::StatusOr<Policy> starting_policy(const TrainFlags& flags, const StartPoint& start,
                                       const std::function<void(std::string_view)>& log,
                                       const std::function<bool()>& stopped);

}  // namespace bascule::ref
