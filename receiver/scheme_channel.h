// SchemeChannel: the receiver's side of the messages between a scheme's two ends (transport/delivery.h). Messages that
// come before attach() or during a pause() are held back. Versions are received on a separate thread, so that neither
// the I/O thread nor the prepare thread waits for bytes from other processes.
#pragma once

#include <utility>  // Boost 1.74 needs it first

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/receiver/handler_scope.h>
#include <bascule/transport/delivery.h>
#include <bascule/transport/task_thread.h>
#include <bascule/transport/wire/messages.h>

namespace bascule::inline v0 {

class SchemeChannel {
 public:
  struct Handlers {  // I/O thread
    std::function<void(const Transport&, const std::vector<int>& descriptors)> say;
    std::function<void(Version, const absl::Status&)> received;
  };
  SchemeChannel(boost::asio::io_context& io, HandlerScope scope, Handlers handlers);
  ~SchemeChannel();

  // ---- I/O thread ----

  // Holds messages back until resume(), while the prepare thread reaches another slot. Each pause() needs a resume().
  void pause() { ++pauses_; }
  void resume();
  // Call it once a sender's memory is reached. If null, the scheme exchanges no messages, and any received are dropped.
  void attach(std::shared_ptr<Reception> reception);
  void hear(std::string bytes, std::vector<UniqueFd> descriptors);
  void receive(const Publication& publication, std::string bytes, Deadline deadline);
  void detach();  // the connection is lost

  void stop();  // detaches, and waits for the thread. Any thread, once the scope is closed

 private:
  class Line;
  void speak();
  void when_attached(std::function<void(const std::shared_ptr<Reception>&)> call);

  boost::asio::io_context& io_;
  const HandlerScope scope_;
  const Handlers handlers_;
  bool attached_ = false;
  int pauses_ = 0;
  std::shared_ptr<Reception> reception_;
  std::shared_ptr<Line> line_;
  std::vector<std::function<void(const std::shared_ptr<Reception>&)>> waiting_;
  std::optional<TaskThread> thread_;  // made for the first version
};

}  // namespace bascule::inline v0
