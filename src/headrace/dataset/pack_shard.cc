#include "headrace/dataset/pack_shard.h"

#include <algorithm>
#include <cstring>

#include "headrace/base/crc32c.h"
#include "headrace/base/fault_point.h"
#include "headrace/base/text.h"
#include "headrace/codec/image.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/tar.h"

namespace headrace::dataset {
namespace {

// Of a JPEG that is rewritten: the limit that decoding has, too.
constexpr uint64_t kMaxPixels = 178956970;

Status ChangedSize(std::string_view path, uint64_t planned, std::string_view found) {
  return Error(Code::kFailedPrecondition,
               "'{}' changed while it was packed: expected {} bytes, as listed at the start, found "
               "{}; let no one write to the source, then run the same command again",
               EscapeText(path), planned, found)
      .At({.file = std::string(path), .offset = {}, .key = {}, .field = {}});
}

// Faults of one source file, which skip_unreadable leaves out; all others end the run.
bool IsFaultOfSource(Code code) {
  return code == Code::kNotFound || code == Code::kPermissionDenied || code == Code::kIoError ||
         code == Code::kDataLoss || code == Code::kFailedPrecondition ||
         code == Code::kInvalidArgument;
}

Status NoMemoryFor(uint64_t bytes) {
  return Error(Code::kResourceExhausted, "no memory for a field of {}; use fewer --threads",
               FormatSize(bytes));
}

Status ReadJpegTally(const Json& json, JpegTally* tally) {
  for (size_t i = 1; i < tally->files.size(); ++i) {
    auto result = static_cast<codec::TranscodeResult>(i);
    HR_ASSIGN_OR_RETURN(tally->files[i],
                        json.GetUint(std::string(codec::TranscodeResultName(result))));
  }
  HR_ASSIGN_OR_RETURN(tally->bytes_before, json.GetUint("bytes_before"));
  HR_ASSIGN_OR_RETURN(tally->bytes_after, json.GetUint("bytes_after"));
  return OkStatus();
}

}  // namespace

void JpegTally::Add(const JpegTally& other) {
  for (size_t i = 0; i < files.size(); ++i) files[i] += other.files[i];
  bytes_before += other.bytes_before;
  bytes_after += other.bytes_after;
}

Json JpegTally::ToJson() const {
  Json json = Json::MakeObject();
  for (size_t i = 1; i < files.size(); ++i)
    json.Set(std::string(codec::TranscodeResultName(static_cast<codec::TranscodeResult>(i))),
             files[i]);
  return json.Set("bytes_before", bytes_before).Set("bytes_after", bytes_after);
}

Json PackedShard::ToJson() const {
  Json names = Json::MakeArray(), left = Json::MakeArray();
  for (const std::string& field : fields) names.Append(EscapeText(field));
  for (const PackSkip& skip : skipped)
    left.Append(Json::MakeObject().Set("key", EscapeText(skip.key)).Set("reason", skip.reason));
  return Json::MakeObject()
      .Set("samples", samples)
      .Set("bytes", bytes)
      .Set("crc32c", crc32c)
      .Set("index_header_crc32c", index_header_crc32c)
      .Set("fields", std::move(names))
      .Set("skipped", std::move(left))
      .Set("jpeg", jpeg.ToJson());
}

Result<PackedShard> PackedShard::FromJson(const Json& json) {
  PackedShard shard;
  HR_ASSIGN_OR_RETURN(shard.samples, json.GetUint("samples"));
  HR_ASSIGN_OR_RETURN(shard.bytes, json.GetUint("bytes"));
  HR_ASSIGN_OR_RETURN(uint64_t crc, json.GetUint("crc32c"));
  HR_ASSIGN_OR_RETURN(uint64_t index_crc, json.GetUint("index_header_crc32c"));
  shard.crc32c = static_cast<uint32_t>(crc);
  shard.index_header_crc32c = static_cast<uint32_t>(index_crc);
  const Json* names = json.Find("fields");
  const Json* left = json.Find("skipped");
  const Json* jpeg = json.Find("jpeg");
  if (names == nullptr || left == nullptr || jpeg == nullptr)
    return Status(Code::kInvalidArgument, "'fields', 'skipped' or 'jpeg' is missing");
  HR_RETURN_IF_ERROR(ReadJpegTally(*jpeg, &shard.jpeg));
  for (const Json& name : names->items()) {
    HR_ASSIGN_OR_RETURN(std::string text, UnescapeText(name.AsString()));
    shard.fields.push_back(std::move(text));
  }
  for (const Json& skip : left->items()) {
    HR_ASSIGN_OR_RETURN(std::string escaped, skip.GetString("key"));
    HR_ASSIGN_OR_RETURN(std::string key, UnescapeText(escaped));
    HR_ASSIGN_OR_RETURN(std::string reason, skip.GetString("reason"));
    shard.skipped.push_back({std::move(key), std::move(reason)});
  }
  return shard;
}

Status PackedShard::Describe(const IndexReader& index) {
  HR_ASSIGN_OR_RETURN(seek, TallySeekPoints(index));
  samples_crc32c.reset();
  if (index.samples_crc32c() != index_header_crc32c) samples_crc32c = index.samples_crc32c();
  return OkStatus();
}

ShardWriter::ShardWriter(FileSystem* fs, const PackList* list, const ShardWriterOptions& options)
    : fs_(fs), list_(list), options_(options) {}

Result<std::unique_ptr<ShardWriter>> ShardWriter::Create(FileSystem* fs, const PackList* list,
                                                         const ShardWriterOptions& options) {
  std::unique_ptr<ShardWriter> writer(new ShardWriter(fs, list, options));
  if (!writer->buffer_.Reserve(options.buffer_bytes))
    return Error(Code::kResourceExhausted,
                 "no memory for a write buffer of {}; use fewer --threads",
                 FormatSize(options.buffer_bytes));
  return writer;
}

Result<PackedShard> ShardWriter::WriteShard(const PackSpan& span, const std::string& tar_path,
                                            const std::string& index_path, const Context& ctx) {
  shard_ = PackedShard();
  names_.clear();
  flushed_ = 0;
  fill_ = 0;
  index_ = std::make_unique<IndexBuilder>(ShardKind::kTar);
  tar_path_ = tar_path;
  HR_ASSIGN_OR_RETURN(file_, options_.sync ? fs_->CreateDirect(tar_path) : fs_->Create(tar_path));
  Status written = WriteSamples(span, ctx);
  if (written.ok()) written = FinishTar();
  file_.reset();
  HR_RETURN_IF_ERROR(std::move(written));
  HR_RETURN_IF_ERROR(WriteIndex(tar_path, index_path, ctx));
  for (uint16_t name : names_) shard_.fields.push_back(list_->field_names()[name]);
  std::sort(shard_.fields.begin(), shard_.fields.end());
  return std::move(shard_);
}

Status ShardWriter::WriteSamples(const PackSpan& span, const Context& ctx) {
  for (uint64_t i = span.first_sample; i < span.first_sample + span.num_samples; ++i) {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (options_.stop && options_.stop->load(std::memory_order_relaxed))
      return Status(Code::kCancelled, "another shard failed");
    HR_RETURN_IF_ERROR(FaultPoint("pack.shard.sample"));
    uint64_t bytes = SampleTarBytes(i);
    if (options_.jpeg != codec::JpegTranscode::kKeep && bytes <= kMaxSeekableBytes) {
      HR_RETURN_IF_ERROR(WriteRewrittenSample(i, ctx));
    } else if (bytes < buffer_.capacity()) {
      if (fill_ + bytes >= buffer_.capacity()) HR_RETURN_IF_ERROR(Flush());
      HR_RETURN_IF_ERROR(WriteSmallSample(i, ctx));
    } else {
      HR_RETURN_IF_ERROR(WriteLargeSample(i, ctx));
    }
    if (options_.progress) {
      options_.progress->samples.fetch_add(1, std::memory_order_relaxed);
      options_.progress->bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
  }
  return OkStatus();
}

uint64_t ShardWriter::SampleTarBytes(uint64_t sample) {
  uint64_t bytes = 0;
  for (const PackField& field : list_->fields(sample)) {
    member_.clear();
    AppendMemberPath(list_->key(sample), list_->name(field), &member_);
    bytes += TarHeaderBytes(member_, field.size_bytes) + TarPaddedBytes(field.size_bytes);
  }
  return bytes;
}

// The caller has made room for the whole sample and one byte, so that a sample that cannot be read
// is taken back by lowering fill_.
Status ShardWriter::WriteSmallSample(uint64_t sample, const Context& ctx) {
  size_t start = fill_;
  index_fields_.clear();
  for (const PackField& field : list_->fields(sample)) {
    BeginField(sample, field, field.size_bytes);
    MutableBytes out(buffer_.data() + fill_, field.size_bytes);
    Status read = ReadField(field, MutableBytes(out.data(), out.size() + 1), ctx);
    if (!read.ok()) {
      fill_ = start;
      return Skip(sample, std::move(read));
    }
    index_fields_.back().crc32c = Crc32c(out);
    KeepSeekPoints(out);
    fill_ += out.size();
    PutZeros(TarPaddedBytes(field.size_bytes) - field.size_bytes);
  }
  return AddToIndex(sample);
}

// Files are all opened before the first header is written, so that those that cannot be opened can
// still be left out. A fault in the middle of such a file ends the run.
Status ShardWriter::WriteLargeSample(uint64_t sample, const Context& ctx) {
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  for (const PackField& field : list_->fields(sample)) {
    files.emplace_back();
    if (field.origin != PackOrigin::kFile) continue;
    auto opened = fs_->OpenForRead(std::string(list_->text(field)));
    if (!opened.ok()) return Skip(sample, std::move(opened).status());
    files.back() = std::move(opened).value();
    if (files.back()->size() != field.size_bytes)
      return Skip(sample, ChangedSize(list_->text(field), field.size_bytes,
                                      fmt::format("{}", files.back()->size())));
  }
  index_fields_.clear();
  size_t next = 0;
  for (const PackField& field : list_->fields(sample)) {
    HR_RETURN_IF_ERROR(Flush());
    BeginField(sample, field, field.size_bytes);
    HR_RETURN_IF_ERROR(StreamField(field, files[next++].get(), ctx));
  }
  return AddToIndex(sample);
}

Status ShardWriter::StreamField(const PackField& field, const RandomAccessFile* file,
                                const Context& ctx) {
  uint64_t base = 0;
  if (field.origin == PackOrigin::kRange) {
    HR_ASSIGN_OR_RETURN(file, OpenContainer(field.container));
    base = field.range_offset;
  } else if (field.origin == PackOrigin::kArray) {
    if (!array_.Reserve(field.size_bytes)) return NoMemoryFor(field.size_bytes);
    HR_RETURN_IF_ERROR(ReadArray(field, MutableBytes(array_.data(), field.size_bytes), ctx));
  }
  uint32_t crc = 0;
  bool whole = false;
  for (uint64_t done = 0; done < field.size_bytes;) {
    if (fill_ == buffer_.capacity()) HR_RETURN_IF_ERROR(Flush());
    HR_RETURN_IF_ERROR(ctx.Check());
    size_t part = std::min<uint64_t>(field.size_bytes - done, buffer_.capacity() - fill_);
    MutableBytes out(buffer_.data() + fill_, part);
    if (field.origin == PackOrigin::kText) {
      std::memcpy(out.data(), list_->text(field).data() + done, part);
    } else if (field.origin == PackOrigin::kArray) {
      std::memcpy(out.data(), array_.data() + done, part);
    } else {
      HR_RETURN_IF_ERROR(file->ReadAt(base + done, out, ctx));
    }
    crc = Crc32c(out, crc);
    if (done == 0) whole = WantsWhole(field, out);
    if (whole) std::memcpy(image_.data() + done, out.data(), part);
    fill_ += part;
    done += part;
  }
  if (field.origin == PackOrigin::kFile) {
    std::byte more;
    HR_ASSIGN_OR_RETURN(size_t grown,
                        file->ReadSome(field.size_bytes, MutableBytes(&more, 1), ctx));
    if (grown != 0) return ChangedSize(list_->text(field), field.size_bytes, "more");
  }
  index_fields_.back().crc32c = crc;
  if (whole) KeepSeekPoints(Bytes(image_.data(), field.size_bytes));
  if (buffer_.capacity() - fill_ < 512) HR_RETURN_IF_ERROR(Flush());
  PutZeros(TarPaddedBytes(field.size_bytes) - field.size_bytes);
  return OkStatus();
}

Status ShardWriter::WriteRewrittenSample(uint64_t sample, const Context& ctx) {
  size_t number = 0;
  for (const PackField& field : list_->fields(sample)) {
    Status read = RewriteField(field, number++, ctx);
    if (!read.ok()) return Skip(sample, std::move(read));
  }
  index_fields_.clear();
  number = 0;
  for (const PackField& field : list_->fields(sample)) {
    const Content& content = contents_[number++];
    Bytes bytes(content.read.data(), field.size_bytes);
    ++shard_.jpeg.files[static_cast<size_t>(content.result)];
    if (content.result == codec::TranscodeResult::kRewritten) {
      shard_.jpeg.bytes_before += bytes.size();
      shard_.jpeg.bytes_after += content.rewritten.size();
      bytes = AsBytes(content.rewritten);
    }
    HR_RETURN_IF_ERROR(PutField(sample, field, bytes));
  }
  return AddToIndex(sample);
}

Status ShardWriter::RewriteField(const PackField& field, size_t number, const Context& ctx) {
  if (contents_.size() <= number) contents_.resize(number + 1);
  Content& content = contents_[number];
  content.rewritten.clear();
  if (!content.read.Reserve(field.size_bytes + 1)) return NoMemoryFor(field.size_bytes);
  HR_RETURN_IF_ERROR(
      ReadField(field, MutableBytes(content.read.data(), field.size_bytes + 1), ctx));
  content.result = codec::TranscodeJpeg(Bytes(content.read.data(), field.size_bytes), options_.jpeg,
                                        kMaxPixels, &content.rewritten);
  return OkStatus();
}

Status ShardWriter::PutField(uint64_t sample, const PackField& field, Bytes bytes) {
  member_.clear();
  AppendMemberPath(list_->key(sample), list_->name(field), &member_);
  if (buffer_.capacity() - fill_ < TarHeaderBytes(member_, bytes.size()))
    HR_RETURN_IF_ERROR(Flush());
  BeginField(sample, field, bytes.size());
  index_fields_.back().crc32c = Crc32c(bytes);
  KeepSeekPoints(bytes);
  for (size_t done = 0; done < bytes.size();) {
    if (fill_ == buffer_.capacity()) HR_RETURN_IF_ERROR(Flush());
    size_t part = std::min(bytes.size() - done, buffer_.capacity() - fill_);
    std::memcpy(buffer_.data() + fill_, bytes.data() + done, part);
    fill_ += part;
    done += part;
  }
  if (buffer_.capacity() - fill_ < 512) HR_RETURN_IF_ERROR(Flush());
  PutZeros(TarPaddedBytes(bytes.size()) - bytes.size());
  return OkStatus();
}

void ShardWriter::BeginField(uint64_t sample, const PackField& field, uint64_t size_bytes) {
  member_.clear();
  header_.clear();
  AppendMemberPath(list_->key(sample), list_->name(field), &member_);
  AppendTarHeader(member_, size_bytes, &header_);
  std::memcpy(buffer_.data() + fill_, header_.data(), header_.size());
  fill_ += header_.size();
  IndexBuilder::Field& entry = index_fields_.emplace_back();
  entry.name = list_->name(field);
  entry.offset = flushed_ + fill_;
  entry.length = size_bytes;
  if (seek_records_.size() < index_fields_.size()) seek_records_.emplace_back();
  seek_records_[index_fields_.size() - 1].clear();
}

bool ShardWriter::WantsWhole(const PackField& field, Bytes head) {
  return options_.seek_spacing != 0 && field.size_bytes <= kMaxSeekableBytes &&
         codec::DetectImageFormat(head) == codec::ImageFormat::kJpeg &&
         image_.Reserve(field.size_bytes);
}

void ShardWriter::KeepSeekPoints(Bytes file) {
  if (options_.seek_spacing == 0) return;
  seek_builder_.Build(file, *index_fields_.back().crc32c, options_.seek_spacing,
                      &seek_records_[index_fields_.size() - 1]);
}

void ShardWriter::PutZeros(size_t count) {
  std::memset(buffer_.data() + fill_, 0, count);
  fill_ += count;
}

Status ShardWriter::ReadField(const PackField& field, MutableBytes out, const Context& ctx) {
  std::string_view text = list_->text(field);
  switch (field.origin) {
    case PackOrigin::kText:
      std::memcpy(out.data(), text.data(), text.size());
      return OkStatus();
    case PackOrigin::kRange: {
      HR_ASSIGN_OR_RETURN(const RandomAccessFile* container, OpenContainer(field.container));
      return container->ReadAt(field.range_offset, out.first(field.size_bytes), ctx);
    }
    case PackOrigin::kArray:
      return ReadArray(field, out.first(field.size_bytes), ctx);
    case PackOrigin::kFile:
      break;
  }
  path_.assign(text);
  HR_ASSIGN_OR_RETURN(size_t read, fs_->ReadInto(path_, out));
  if (read < field.size_bytes) return ChangedSize(text, field.size_bytes, fmt::format("{}", read));
  if (read > field.size_bytes) return ChangedSize(text, field.size_bytes, "more");
  return OkStatus();
}

// Bare numbers become an .npy array, as a reader of the source would get it.
Status ShardWriter::ReadArray(const PackField& field, MutableBytes out, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(const RandomAccessFile* container, OpenContainer(field.container));
  if (!numbers_.Reserve(field.stored_bytes)) return NoMemoryFor(field.stored_bytes);
  MutableBytes stored(numbers_.data(), field.stored_bytes);
  HR_RETURN_IF_ERROR(container->ReadAt(field.range_offset, stored, ctx));
  ArrayForm form;
  if (!ArrayForm::Parse(list_->text(field), &form))
    return Status(Code::kInternal, "a list of samples with a form of numbers that is none");
  return WriteNpy(form, stored, out)
      .At({.file = container->path(), .offset = field.range_offset, .key = {}, .field = {}});
}

Result<const RandomAccessFile*> ShardWriter::OpenContainer(uint32_t number) {
  if (container_ && container_number_ == number) return container_.get();
  const PackContainer& wanted = list_->containers()[number];
  if (wanted.open) {
    HR_ASSIGN_OR_RETURN(container_, wanted.open());
  } else {
    HR_ASSIGN_OR_RETURN(container_, fs_->OpenForRead(wanted.path));
  }
  container_number_ = number;
  if (container_->size() != wanted.size_bytes) {
    Status changed =
        ChangedSize(wanted.path, wanted.size_bytes, fmt::format("{}", container_->size()));
    container_.reset();
    return changed;
  }
  return container_.get();
}

Status ShardWriter::Skip(uint64_t sample, Status why) {
  if (!options_.skip_unreadable || !IsFaultOfSource(why.code()))
    return std::move(why).At(
        {.file = {}, .offset = {}, .key = std::string(list_->key(sample)), .field = {}});
  shard_.skipped.push_back({std::string(list_->key(sample)), std::string(why.message())});
  return OkStatus();
}

Status ShardWriter::AddToIndex(uint64_t sample) {
  for (const PackField& field : list_->fields(sample)) names_.insert(field.name);
  for (size_t i = 0; i < index_fields_.size(); ++i) index_fields_[i].seek_points = seek_records_[i];
  ++shard_.samples;
  return index_->Add(list_->key(sample), index_fields_);
}

Status ShardWriter::AtTar(Status status) const {
  return std::move(status).At({.file = tar_path_, .offset = flushed_, .key = {}, .field = {}});
}

Status ShardWriter::Flush() {
  if (fill_ == 0) return OkStatus();
  HR_RETURN_IF_ERROR(FaultPoint("pack.shard.write"));
  Bytes part(buffer_.data(), fill_);
  shard_.crc32c = Crc32c(part, shard_.crc32c);
  HR_RETURN_IF_ERROR(AtTar(file_->Append(part)));
  flushed_ += fill_;
  fill_ = 0;
  return OkStatus();
}

Status ShardWriter::FinishTar() {
  if (buffer_.capacity() - fill_ < kTarEndBytes) HR_RETURN_IF_ERROR(Flush());
  PutZeros(kTarEndBytes);
  HR_RETURN_IF_ERROR(Flush());
  shard_.bytes = flushed_;
  HR_RETURN_IF_ERROR(FaultPoint("pack.shard.before_sync"));
  if (options_.sync) HR_RETURN_IF_ERROR(AtTar(file_->Sync()));
  return AtTar(file_->Close());
}

Status ShardWriter::WriteIndex(const std::string& tar_path, const std::string& index_path,
                               const Context& ctx) {
  HR_RETURN_IF_ERROR(FaultPoint("pack.shard.before_index"));
  HR_ASSIGN_OR_RETURN(auto tar, fs_->OpenForRead(tar_path));
  HR_ASSIGN_OR_RETURN(ShardIdentity identity, IdentifyShard(*tar, ctx));
  HR_ASSIGN_OR_RETURN(std::string bytes, index_->Finish(identity));
  HR_ASSIGN_OR_RETURN(auto file, fs_->Create(index_path));
  HR_RETURN_IF_ERROR(file->Append(AsBytes(bytes)));
  if (options_.sync) HR_RETURN_IF_ERROR(file->Sync());
  HR_RETURN_IF_ERROR(file->Close());
  HR_ASSIGN_OR_RETURN(auto index, IndexReader::FromBytes(std::move(bytes), index_path));
  shard_.index_header_crc32c = index->header_crc32c();
  return shard_.Describe(*index);
}

}  // namespace headrace::dataset
