#include <bascule/trainer_ref/grpo/data/data_file.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <utility>

#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr const char *kMessages = "messages", *kTokenIds = "prompt_token_ids", *kQuestion = "question";
constexpr std::string_view kHashes = "####";
constexpr std::uint64_t kLargestId = (std::uint64_t{1} << 31) - 1;

// Takes the column `name` out of `line`; returns null if there is none.
nlohmann::json take(nlohmann::json& line, const std::string& name) {
  const auto found = line.find(name);
  if (found == line.end()) return nullptr;
  nlohmann::json value = std::move(*found);
  line.erase(found);
  return value;
}

std::string names_of(const nlohmann::json& line) {
  std::string names;
  for (const auto& [name, value] : line.items()) names.append(names.empty() ? "" : ", ").append(name);
  return names.empty() ? "none" : names;
}

absl::Status read_token_ids(const nlohmann::json& value, std::string_view column, Problem& problem) {
  if (!value.is_array() || value.empty())
    return invalid_argument("expected a list of token ids under \"", column, "\", found ", value.dump().substr(0, 80));
  for (const nlohmann::json& id : value) {
    if (!id.is_number_integer() || (id.is_number_unsigned() ? id.get<std::uint64_t>() > kLargestId : true))
      return invalid_argument("\"", column, "\" holds ", id.dump().substr(0, 80), "; expected token ids, from 0 to ",
                              kLargestId);
    problem.prompt_token_ids.push_back(id.get<std::int64_t>());
  }
  return absl::OkStatus();
}

// `text` is the line, with the order of keys, which a chat template may show.
absl::Status read_messages(const nlohmann::json& value, const std::string& column, const std::string& text,
                           Problem& problem) {
  if (!value.is_array() || value.empty())
    return invalid_argument("expected a list of messages under \"", column, "\", found ", value.dump().substr(0, 80));
  for (const nlohmann::json& message : value)
    for (const char* key : {"role", "content"})
      if (!message.is_object() || !message.contains(key) || !message[key].is_string())
        return invalid_argument("\"", column, "\" holds ", message.dump().substr(0, 80),
                                "; expected messages {\"role\": \"user\", \"content\": \"…\"}");
  problem.messages = parse_ordered(text)[column];
  return absl::OkStatus();
}

// Reads a text, or the other values that a prompt column may have.
absl::Status read_prompt(const nlohmann::json& value, const std::string& column, const std::string& text,
                         Problem& problem) {
  if (value.is_array() && !value.empty() && value.front().is_object())
    return read_messages(value, column, text, problem);
  if (value.is_array() && problem.prompt_token_ids.empty()) return read_token_ids(value, column, problem);
  if (!value.is_string())
    return invalid_argument("expected a string under \"", column, "\", found a ", value.type_name(),
                            "; a list of messages or of token ids is also allowed");
  problem.prompt = value.get<std::string>();
  if (problem.prompt.empty()) return invalid_argument("the prompt is empty");
  return absl::OkStatus();
}

// Splits GSM8K's answer into the number and the rationale before it, which goes to the other columns.
absl::Status part_rationale(Problem& problem) {
  const std::size_t hashes = problem.answer.rfind(kHashes);
  if (hashes == std::string::npos) return absl::OkStatus();
  const std::size_t begin =
      std::min(problem.answer.find_first_not_of(" \t\r\n", hashes + kHashes.size()), problem.answer.size());
  std::string number = problem.answer.substr(begin);
  number.erase(number.find_last_not_of(" \t\r\n") + 1);
  problem.columns["rationale"] = problem.answer.substr(0, hashes);
  if (number.empty()) return invalid_argument("expected the answer after the last ", kHashes, ", found nothing");
  problem.answer = std::move(number);
  return absl::OkStatus();
}

absl::Status read_answer(const nlohmann::json& value, const std::string& column, Problem& problem) {
  if (value.is_string())
    problem.answer = value.get<std::string>();
  else if (value.is_number())
    problem.answer = value.dump();
  else
    return invalid_argument("expected a string or a number under \"", column, "\", found a ", value.type_name());
  return absl::OkStatus();
}

// Rewards and templates get numbers of at most 64 bits: a larger integer would lose digits. As an answer it is a text.
absl::Status keep_digits(const std::string& text, const DataColumns& columns, nlohmann::json& line) {
  nlohmann::ordered_json exact = parse_ordered(text);
  if (const auto answer = exact.find(columns.answer); answer != exact.end() && answer->is_binary()) {
    line[columns.answer] = digits_of(*answer);
    exact.erase(answer);
  }
  const nlohmann::ordered_json* const big = find_big_integer(exact);
  if (big == nullptr) return absl::OkStatus();
  return invalid_argument("expected integers of at most 64 bits, found ", digits_of(*big).substr(0, 80),
                          "; write it as a text");
}

absl::StatusOr<Problem> read_problem(const std::string& text, const DataColumns& columns) {
  BASCULE_ASSIGN(nlohmann::json line, parse_json(text, "the line"));
  if (!line.is_object()) return invalid_argument("expected a JSON object, found a JSON ", line.type_name());
  BASCULE_TRY(keep_digits(text, columns, line));
  const auto missing = [names = names_of(line)](std::string_view column, std::string_view flag) {
    return invalid_argument("expected a key \"", column, "\" (--", flag, " names another), found the keys: ", names);
  };
  Problem problem;
  bool is_gsm8k = false;
  if (line.contains(kTokenIds)) BASCULE_TRY(read_token_ids(take(line, kTokenIds), kTokenIds, problem));
  if (line.contains(columns.prompt)) {
    BASCULE_TRY(read_prompt(take(line, columns.prompt), columns.prompt, text, problem));
    is_gsm8k = columns.prompt == kQuestion;
  } else if (columns.prompt == DataColumns().prompt && problem.prompt_token_ids.empty()) {
    is_gsm8k = !line.contains(kMessages) && line.contains(kQuestion);
    if (is_gsm8k)
      BASCULE_TRY(read_prompt(take(line, kQuestion), kQuestion, text, problem));
    else if (line.contains(kMessages))
      BASCULE_TRY(read_messages(take(line, kMessages), kMessages, text, problem));
    else
      return missing(columns.prompt, "prompt-column");
  } else if (problem.prompt_token_ids.empty()) {
    return missing(columns.prompt, "prompt-column");
  }
  if (!problem.messages.is_null() && !problem.prompt_token_ids.empty())
    return invalid_argument("expected messages or \"", kTokenIds, "\", found both; leave one out");
  if (!columns.answer.empty()) {
    if (!line.contains(columns.answer)) return missing(columns.answer, "answer-column");
    BASCULE_TRY(read_answer(take(line, columns.answer), columns.answer, problem));
  }
  problem.columns = std::move(line);
  if (is_gsm8k) BASCULE_TRY(part_rationale(problem));
  return problem;
}

}  // namespace

absl::StatusOr<std::vector<Problem>> read_problems(const std::filesystem::path& file, const DataColumns& columns) {
  if (std::error_code error; std::filesystem::is_directory(file, error))
    return invalid_argument(file.string(), ": expected a file of JSON lines, found a folder");
  if (columns.prompt == columns.answer)
    return invalid_argument("--prompt-column and --answer-column both name \"", columns.prompt,
                            "\"; give each its own, or --answer-column= if there are no answers");
  std::ifstream stream(file);
  if (!stream) return errno_status(errno, file.string());
  std::vector<Problem> problems;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<Problem> problem = read_problem(line, columns);
    if (!problem.ok()) return annotate(problem.status(), cat(file.string(), " line ", number));
    problems.push_back(*std::move(problem));
  }
  return problems;
}

}  // namespace bascule::ref
