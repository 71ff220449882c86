import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * What jobs/kafka_feature.leat does, in Kafka Streams: a running count and sum of each user, told with every event.
 *
 * <p>Feature BROKERS IN OUT STATE_DIR APPLICATION_ID THREADS COUNT: ends when COUNT events were processed.
 */
public final class Feature {
  private static final String STORE = "totals";
  private static final AtomicLong left = new AtomicLong();
  private static final CountDownLatch done = new CountDownLatch(1);

  /** Count and sum of a user lie in the store as two longs. */
  private static final class Totals implements Processor<byte[], byte[], byte[], byte[]> {
    private final Event event = new Event();
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], byte[]> store;

    @Override
    public void init(ProcessorContext<byte[], byte[]> context) {
      this.context = context;
      store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
      try {
        event.parse(record.value());
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      byte[] before = store.get(record.key());
      long count = 1;
      long total = event.value;
      if (before != null) {
        ByteBuffer buffer = ByteBuffer.wrap(before);
        count += buffer.getLong();
        total += buffer.getLong();
      }
      store.put(record.key(), ByteBuffer.allocate(16).putLong(count).putLong(total).array());
      context.forward(record.withValue(event.tell(count, total, record.timestamp())));
      if (left.decrementAndGet() == 0) {
        done.countDown();
      }
    }
  }

  private static Topology topology(String in, String out) {
    Serde<byte[]> bytes = Serdes.ByteArray();
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), bytes, bytes)
        .withCachingEnabled().withLoggingEnabled(Map.of()));
    builder.stream(in, Consumed.with(bytes, bytes)).process(Totals::new, STORE).to(out, Produced.with(bytes, bytes));
    return builder.build();
  }

  /** What differs from the defaults; README.md says why. */
  private static Properties settings(String[] arguments) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[4]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[5]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 128L << 20);
    settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10000);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 10000);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 4 << 20);
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 << 10);
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
    return settings;
  }

  public static void main(String[] arguments) throws InterruptedException {
    if (arguments.length != 7) {
      System.err.println("Feature BROKERS IN OUT STATE_DIR APPLICATION_ID THREADS COUNT");
      System.exit(2);
    }
    left.set(Long.parseLong(arguments[6]));
    KafkaStreams streams = new KafkaStreams(topology(arguments[1], arguments[2]), settings(arguments));
    streams.setUncaughtExceptionHandler(error -> {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
      return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
    streams.start();
    boolean isDone = done.await(10, TimeUnit.MINUTES);
    streams.close(Duration.ofSeconds(60)); // commits what was processed
    System.exit(isDone ? 0 : 1);
  }

  private Feature() { }
}
