// Fields that several requests share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/http/api_request.h>
#include <bascule/trainer_ref/engine/http/fields.h>

namespace bascule::ref {

inline constexpr std::int64_t kMostTopLogprobs = 20;

absl::StatusOr<nlohmann::json> parse_object(std::string_view text);
absl::Status check_model(Fields& fields, const ModelCard& card);  // NOT_FOUND
bool is_token(const nlohmann::json& value, const ModelCard& card);

// `where` begins an error's text.
absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text, bool add_special_tokens, const ModelCard& card,
                                                 std::string_view where);
// The text of "messages", "tools" and "chat_template_kwargs", as token ids. `text` is the request that `fields` reads.
absl::StatusOr<std::vector<std::int64_t>> read_messages(std::string_view text, Fields& fields, const ModelCard& card,
                                                        bool add_special_tokens);

// What both kinds of completions ask for, but prompts, max_tokens and logprobs. Refusals are in fields.status.
void read_shared_fields(Fields& fields, const ModelCard& card, ApiRequest& request);

// Checks the request as a whole once all of its fields are read, and fills in what the answer needs of it.
absl::Status finish_request(const ModelCard& card, ApiRequest& request);

}  // namespace bascule::ref
