#include "wire.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "errors.h"

extern char **environ;

namespace {

std::mutex talking, releasing;
Numbers &released = *new Numbers; // Julia may release objects after C++ destroys its own
int connection = -1;
pid_t child_of = 0; // the process that started the child

void append(std::string &body, int64_t value) {
  body.append(reinterpret_cast<const char *>(&value), sizeof value);
}

// The real library ends its process when XLA ends itself, so this one does too.
void end_with(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return;
  if (WIFSIGNALED(status))
    std::fprintf(stderr, "XLA library for tests: XLA's process ended with signal %d\n",
                 WTERMSIG(status));
  else
    std::fprintf(stderr, "XLA library for tests: XLA's process ended with status %d\n",
                 WEXITSTATUS(status));
  std::abort();
}

// An error message, or "" if the child runs.
std::string start() {
  if (connection >= 0)
    return child_of == getpid() ? "" : "XLA's process belongs to the process that was forked";
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
    return std::string("no socket pair: ") + strerror(errno);
  // dup2 onto another number clears the flag that closes it at exec.
  int given = fcntl(ends[1], F_DUPFD, 100);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none); // Julia's threads block signals
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string number = std::to_string(given);
  const char *arguments[] = {CHILD_PYTHON, "-I", "-B", CHILD_FOLDER "/main.py",
                             number.c_str(), nullptr};
  pid_t child = 0;
  int error = posix_spawn(&child, CHILD_PYTHON, &actions, &attributes,
                          const_cast<char **>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  close(given);
  if (error) {
    close(ends[0]);
    return std::string("cannot start " CHILD_PYTHON ": ") + strerror(error);
  }
  connection = ends[0];
  child_of = getpid();
  std::thread(end_with, child).detach();
  return "";
}

bool write_all(const char *data, size_t size) {
  while (size > 0) {
    ssize_t done = send(connection, data, size, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done, size -= done;
  }
  return true;
}

bool read_all(char *data, size_t size) {
  while (size > 0) {
    ssize_t done = recv(connection, data, size, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data += done, size -= done;
  }
  return true;
}

// An error message, or "" if there is an answer.
std::string exchange(const std::string &head, const std::string &body, std::string &answer) {
  std::lock_guard<std::mutex> lock(talking);
  if (std::string error = start(); !error.empty()) return error;
  int64_t size = head.size() + body.size();
  if (!write_all(reinterpret_cast<const char *>(&size), sizeof size) ||
      !write_all(head.data(), head.size()) || !write_all(body.data(), body.size()) ||
      !read_all(reinterpret_cast<char *>(&size), sizeof size))
    return "XLA's process closed the connection";
  answer.resize(size);
  return read_all(answer.data(), size) ? "" : "XLA's process closed the connection";
}

} // namespace

Request &Request::number(int64_t value) {
  append(body_, value);
  return *this;
}

Request &Request::numbers(const Numbers &values) {
  append(body_, values.size());
  for (int64_t value : values) append(body_, value);
  return *this;
}

Request &Request::bytes(const void *data, size_t size) {
  append(body_, size);
  body_.append(static_cast<const char *>(data), size);
  return *this;
}

Reply::Reply(const Request &request) {
  std::string head, error;
  {
    std::lock_guard<std::mutex> lock(releasing);
    append(head, released.size());
    for (int64_t number : released) append(head, number);
    released.clear();
  }
  append(head, request.operation_.size());
  head += request.operation_;
  error = exchange(head, request.body_, body_);
  if (error.empty() && number() != 0) error = text();
  if (!error.empty()) fail(error);
}

int64_t Reply::number() {
  int64_t value;
  std::memcpy(&value, body_.data() + at_, sizeof value);
  at_ += sizeof value;
  return value;
}

Numbers Reply::numbers() {
  Numbers values(number());
  for (int64_t &value : values) value = number();
  return values;
}

std::string Reply::text() {
  size_t size = number();
  at_ += size;
  return body_.substr(at_ - size, size);
}

void Reply::bytes_into(void *data) {
  size_t size = number();
  std::memcpy(data, body_.data() + at_, size);
  at_ += size;
}

Held::~Held() {
  std::lock_guard<std::mutex> lock(releasing);
  released.push_back(number);
}
