// Fields that several kinds of requests share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/fields.h>

namespace bascule::ref {

inline constexpr std::int64_t kMostTopLogprobs = 20;

absl::StatusOr<nlohmann::json> parse_object(std::string_view text);
// The adapter that the request names, as find_model() finds it.
absl::StatusOr<AdapterEntry> read_model(Fields& fields, const ModelCard& card);
// The end of an error about a request that is too long. Clients recognise the error by these words, which are OpenAI's.
std::string context_length_of(const ModelCard& card);

bool is_token(const nlohmann::json& value, const ModelCard& card);

// Encodes `text`. Errors begin with `where`.
absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text, bool add_special_tokens, const ModelCard& card,
                                                 std::string_view where, const EncodeLimits& limits);
// Renders "messages", "tools" and "chat_template_kwargs", and returns the token ids. `text` is the request that
// `fields` reads.
absl::StatusOr<std::vector<std::int64_t>> read_messages(std::string_view text, Fields& fields, const ModelCard& card,
                                                        bool add_special_tokens, const EncodeLimits& limits);

// Reads the fields that both kinds of completions share, except prompts, max_tokens and logprobs. Errors are in
// fields.status. `seed` is used if the request has none.
void read_shared_fields(Fields& fields, const ModelCard& card, std::uint64_t seed, ApiRequest& request);

// Reads max_tokens or max_completion_tokens: `least` or more, or -1, which stands for all that fit. Returns nullopt if
// it is missing or null.
std::optional<std::int64_t> read_max_tokens(Fields& fields, const char* field, std::int64_t least,
                                            const ModelCard& card);

// Sets the request's max_tokens and max_length. nullopt: the model's own number, or as many as fit. Returns how many
// tokens must fit after each prompt.
std::int64_t set_max_tokens(std::optional<std::int64_t> asked, const ModelCard& card, CompletionRequest& request);

// Checks the request as a whole once all of its fields are read, and fills in what the answer needs from it.
absl::Status finish_request(const ModelCard& card, ApiRequest& request);

}  // namespace bascule::ref
