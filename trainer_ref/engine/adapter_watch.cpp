#include <bascule/trainer_ref/engine/adapter_watch.h>

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <future>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr int kLookMilliseconds = 1000;

}  // namespace

absl::Status load_adapter(Engine& engine, AdapterLoader& loader, const std::string& name, const std::string& source) {
  BASCULE_ASSIGN(std::unique_ptr<AdapterWeights> weights, loader.open(source));
  std::promise<absl::Status> loaded;
  engine.load_adapter({.name = name, .source = source, .created = absl::ToUnixSeconds(absl::Now())},
                      /*in_place=*/false, std::move(weights),
                      [&loaded](const absl::Status& status) { loaded.set_value(status); });
  return loaded.get_future().get();
}

AdapterWatch::AdapterWatch(std::string folder, Engine& engine, AdapterLoader& loader)
    : folder_(std::move(folder)), engine_(engine), loader_(loader) {}

absl::StatusOr<std::unique_ptr<AdapterWatch>> AdapterWatch::open(
    const std::string& folder, Engine& engine, AdapterLoader& loader,
    std::function<absl::Status(std::string_view name)> check_name, std::function<void(std::string_view)> warn) {
  std::unique_ptr<AdapterWatch> watch(new AdapterWatch(folder, engine, loader));
  watch->check_name_ = std::move(check_name);
  watch->warn_ = std::move(warn);
  if (folder.find("://") != std::string::npos) {
    BASCULE_ASSIGN(watch->endpoints_, EndpointFolder::open(folder));
  } else if (std::error_code error; !fs::is_directory(folder, error)) {
    return absl::NotFoundError(cat(folder, ": no such folder"));
  }
  watch->stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!watch->stop_) return absl::ResourceExhaustedError("no descriptor is left to watch a folder of adapters");
  watch->look();  // what is there now is loaded before the engine takes requests
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  return watch;
}

AdapterWatch::~AdapterWatch() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof one));
  thread_.join();
}

void AdapterWatch::run() {
  std::array<pollfd, 2> fds{{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                             {.fd = endpoints_ ? endpoints_->descriptor() : -1, .events = POLLIN, .revents = 0}}};
  while (true) {
    ::poll(fds.data(), fds.size(), kLookMilliseconds);
    if (fds[0].revents != 0) return;
    look();
  }
}

void AdapterWatch::look() {
  const auto say = [this](std::string text) {
    if (said_.insert(text).second) warn_(text);
  };
  const absl::StatusOr<std::map<std::string, std::string>> found = sources();
  if (!found.ok()) return say(cat("--adapters: ", message_of(found.status())));
  std::erase_if(loaded_, [&](const std::string& name) {
    if (found->contains(name)) return false;
    engine_.unload_adapter(name, [](const absl::Status&) {});
    return true;
  });
  for (const auto& [name, source] : *found) {
    if (loaded_.contains(name)) continue;
    absl::Status status = check_name_(name);
    if (status.ok()) status = load_adapter(engine_, loader_, name, source);
    if (status.ok()) {
      loaded_.insert(name);
    } else {
      say(cat("--adapters: ", name, " is not loaded: ", message_of(status)));
    }
  }
}

absl::StatusOr<std::map<std::string, std::string>> AdapterWatch::sources() {
  if (endpoints_) return endpoints_->endpoints();
  std::map<std::string, std::string> folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
    if (is_adapter_folder(entry->path())) folders[entry->path().filename().string()] = entry->path().string();
  if (error) return absl::NotFoundError(cat(folder_, ": ", error.message()));
  return folders;
}

}  // namespace bascule::ref
