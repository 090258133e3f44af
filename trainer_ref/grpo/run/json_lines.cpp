#include <bascule/trainer_ref/grpo/run/json_lines.h>

#include <fcntl.h>

#include <cerrno>
#include <fstream>
#include <string>

#include <bascule/transport/json.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Replaces invalid UTF-8, which a data file or an engine may contain, instead of failing.
std::string line_of(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::Status write_lines(const std::filesystem::path& file, const std::vector<nlohmann::json>& lines) {
  std::string text;
  for (const nlohmann::json& line : lines) text += line_of(line);
  return write_file(file, text);
}

}  // namespace

absl::StatusOr<std::vector<nlohmann::json>> read_json_lines(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream) return absl::NotFoundError(cat("cannot read ", file.string()));
  std::vector<nlohmann::json> lines;
  std::string text;
  for (int number = 1; std::getline(stream, text); ++number) {
    if (stream.eof()) break;  // no newline follows
    BASCULE_ASSIGN(nlohmann::json line, parse_json(text, cat(file.string(), " line ", number)));
    lines.push_back(std::move(line));
  }
  return lines;
}

absl::Status append_json_line(const std::filesystem::path& file, const nlohmann::json& line) {
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd) return errno_status(errno, cat("open ", file.string()));
  return write_all(fd.get(), line_of(line), file.string());
}

absl::Status keep_steps(const std::filesystem::path& file, std::int64_t last_step) {
  if (std::error_code error; !std::filesystem::exists(file, error)) return absl::OkStatus();
  BASCULE_ASSIGN(std::vector<nlohmann::json> lines, read_json_lines(file));
  std::erase_if(lines, [&](const nlohmann::json& line) {
    return !line.is_object() || line.value("step", std::int64_t{0}) > last_step;
  });
  return write_lines(file, lines);
}

}  // namespace bascule::ref
