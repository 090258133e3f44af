// Rewards that a program or a server computes, a batch of completions at a time.
//
// A request is one line of JSON, and so is its answer:
//
//   {"id": 7, "completions": [{"prompt": "2+2=", "completion": " 4", "answer": "4", "finish_reason": "stop",
//                              "completion_tokens": 2, "columns": {"level": 3}}, …]}
//   {"id": 7, "rewards": [1, null, {"reward": 0.5}, …]}
//
// "columns" are the other columns of the problem's line. A problem of messages or token ids has "messages" or
// "prompt_token_ids", and its prompt may be empty. The answer has an element for each completion, in their order: a
// number from -1e6 to 1e6, null or NaN (the reward does not apply), true or false (1 or 0), or an object with one of
// these under "reward". Any other element, such as Infinity, counts as null and is logged; ten answers in a row that
// have nothing else end the run. Invalid UTF-8 in a completion arrives as U+FFFD.
//
// A program (exec:) reads requests from stdin one at a time, writes an answer to stdout for each, and flushes it; its
// stderr is the trainer's. Lines on its stdout that are no answers are passed over, and the first one is logged; a
// thousand of them without an answer end the run, with the last ones in the error. It is started once, in its own
// process group. It should end when its stdin does; otherwise it is killed with its group. If it ends or times out, it
// is restarted. A server (http:) gets each request as the body of a POST and answers with status 200; after 429 or 5xx
// the request is sent again. A malformed answer is also asked for again. Either may get a request twice. After three
// failed tries the run writes a checkpoint and ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <bascule/trainer_ref/grpo/reward/reward.h>

namespace bascule::ref {

// Returns the request for `completions`, without a newline.
std::string reward_request(std::uint64_t id, std::span<const Scored> completions);

// Starts `command`, a program (found in PATH if its name has no slash) and its arguments. Returns INVALID_ARGUMENT if
// it cannot be started. `name` is for logs and errors.
absl::StatusOr<std::unique_ptr<Reward>> exec_reward(std::string name, std::vector<std::string> command,
                                                    RewardOptions options);

// Uses the server at `url`, http://HOST:PORT/PATH, over one connection.
std::unique_ptr<Reward> http_reward(std::string name, std::string url, RewardOptions options);

}  // namespace bascule::ref
