// Simulates a loss of power: records the operations on a folder's files, and makes, for any moment, a folder as a disk
// might hold it.
//
// Nothing is promised between two syncs. Each page of a written file is as it was at the last sync or at any moment
// since, including writes under way, and some pages are torn: their sectors come from different moments. A file that
// was never synced may be shorter. Each name means the file that it named at the last sync of the folder, or any file
// that it was made to name since.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <bascule/schemes/memmap/memmap.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>

namespace bascule::test {

class PowerRecord {
 public:
  explicit PowerRecord(std::filesystem::path folder) : folder_(std::move(folder)) {}

  memmap::FileObserver observer() {
    return [this](const memmap::FileOperation& operation) { record(operation); };
  }
  // A send returned: its version must survive any later loss of power.
  void acknowledge(Version version) {
    const std::lock_guard lock(mutex_);
    events_.push_back({.what = Acknowledged{version}});
  }
  std::size_t moments() {
    const std::lock_guard lock(mutex_);
    return events_.size() + 1;
  }

  // Fills the empty `folder` as the disk might be if the power is cut after the first `moment` events. Returns the
  // newest version acknowledged by then.
  Version cut(std::size_t moment, std::mt19937_64& random, const std::filesystem::path& folder) {
    const std::lock_guard lock(mutex_);
    Disk disk;
    Version acknowledged = 0;
    for (std::size_t i = 0; i < moment; ++i) {
      if (const auto* ack = std::get_if<Acknowledged>(&events_[i].what)) acknowledged = ack->version;
      disk.apply(events_[i]);
    }
    if (moment < events_.size()) disk.begin(events_[moment]);
    disk.fill(folder, random);
    return acknowledged;
  }

 private:
  static constexpr std::size_t kSector = 512, kPage = 4096;

  struct Acknowledged {
    Version version;
  };
  struct Bound {  // a name now means a new file with these bytes
    std::string name, content;
  };
  struct Linked {
    std::string name, target;
  };
  struct Removed {
    std::string name;
  };
  struct Written {  // the file of this name now has this content
    std::string name, content;
  };
  struct Synced {
    std::string name;
  };
  struct FolderSynced {};
  struct Event {
    std::variant<Acknowledged, Bound, Linked, Removed, Written, Synced, FolderSynced> what;
  };

  struct File {
    std::vector<std::string> contents;  // at the last sync, and at each moment since
    bool was_synced = false;
    std::string link;  // not empty: a link
  };
  using Binding = std::shared_ptr<File>;  // null: no such name

  // Everything that the disk may hold.
  struct Disk {
    std::map<std::string, std::vector<Binding>> names;  // at the last sync of the folder, and at each moment since

    Binding current(const std::string& name) {
      const auto found = names.find(name);
      return found == names.end() ? nullptr : found->second.back();
    }
    void bind(const std::string& name, Binding file) {
      names.try_emplace(name, std::vector<Binding>{nullptr}).first->second.push_back(std::move(file));
    }
    void apply(const Event& event) {
      if (const auto* bound = std::get_if<Bound>(&event.what)) {
        bind(bound->name,
             std::make_shared<File>(File{.contents = {"", bound->content}, .was_synced = false, .link = ""}));
      } else if (const auto* linked = std::get_if<Linked>(&event.what)) {
        bind(linked->name, std::make_shared<File>(File{.contents = {}, .was_synced = true, .link = linked->target}));
      } else if (const auto* removed = std::get_if<Removed>(&event.what)) {
        bind(removed->name, nullptr);
      } else if (const auto* written = std::get_if<Written>(&event.what)) {
        if (const Binding file = current(written->name)) file->contents.push_back(written->content);
      } else if (const auto* synced = std::get_if<Synced>(&event.what)) {
        if (const Binding file = current(synced->name)) {
          file->contents = {file->contents.back()};
          file->was_synced = true;
        }
      } else if (std::holds_alternative<FolderSynced>(event.what)) {
        for (auto& [name, bindings] : names) bindings = {bindings.back()};
      }
    }
    // The next event may be partly done; a sync that did not return has no effect.
    void begin(const Event& event) {
      if (!std::holds_alternative<Synced>(event.what) && !std::holds_alternative<FolderSynced>(event.what))
        apply(event);
    }

    void fill(const std::filesystem::path& folder, std::mt19937_64& random) const {
      for (const auto& [name, bindings] : names) {
        const Binding& file = bindings[below(random, bindings.size())];
        if (!file) continue;
        if (file->link.empty()) {
          replace_file(folder / name, content_of(*file, random)).IgnoreError();
        } else {
          std::filesystem::create_directories((folder / name).parent_path());
          std::filesystem::create_symlink(file->link, folder / name);
        }
      }
    }
    static std::size_t below(std::mt19937_64& random, std::size_t bound) {
      return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
    }
    static std::string content_of(const File& file, std::mt19937_64& random) {
      std::string made(file.contents.back().size(), '\0');
      const auto copy = [&](std::size_t at, std::size_t bytes) {
        const std::string& from = file.contents[below(random, file.contents.size())];
        if (at < from.size()) from.copy(made.data() + at, std::min({bytes, from.size() - at, made.size() - at}), at);
      };
      for (std::size_t page = 0; page < made.size(); page += kPage) {
        if (below(random, 8) != 0) {
          copy(page, kPage);
        } else {
          for (std::size_t at = page; at < std::min(page + kPage, made.size()); at += kSector) copy(at, kSector);
        }
      }
      if (!file.was_synced && below(random, 4) == 0) made.resize(below(random, made.size() + 1));
      return made;
    }
  };

  void record(const memmap::FileOperation& operation) {
    using Kind = memmap::FileOperation::Kind;
    const std::string name(operation.file);
    const auto content = [&] { return read_file(folder_ / name, std::uint64_t{1} << 30).value_or(""); };
    Event event;
    switch (operation.kind) {
      case Kind::kMade:
      case Kind::kReplaced: event.what = Bound{name, content()}; break;
      case Kind::kWritten: event.what = Written{name, content()}; break;
      case Kind::kLinked: event.what = Linked{name, std::filesystem::read_symlink(folder_ / name)}; break;
      case Kind::kRemoved: event.what = Removed{name}; break;
      case Kind::kSynced: event.what = Synced{name}; break;
      case Kind::kFolderSynced: event.what = FolderSynced{}; break;
    }
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }

  const std::filesystem::path folder_;
  std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace bascule::test
