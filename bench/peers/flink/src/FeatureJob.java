import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * What jobs/kafka_feature.leat does, in Flink: a running count and sum of each user, told with every event.
 *
 * <p>FeatureJob HOST PORT BROKERS IN OUT latest|never SETTINGS... gives the job to the cluster whose REST
 * server is there. latest: the job reads what the topic has, and this program waits for its end. SETTINGS are Flink's,
 * NAME=VALUE.
 */
public final class FeatureJob {
  /** id, user, value, sent and appended of an event: what goes from the reader to the task that has the user. */
  private static final class Parser implements KafkaRecordDeserializationSchema<Tuple5<Long, Long, Long, Long, Long>> {
    private transient Event event;
    private transient Tuple5<Long, Long, Long, Long, Long> tuple;

    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record,
        Collector<Tuple5<Long, Long, Long, Long, Long>> out) throws IOException {
      if (event == null) {
        event = new Event();
        tuple = new Tuple5<>();
      }
      event.parse(record.value());
      tuple.setFields(event.id, event.user, event.value, event.sent, record.timestamp());
      out.collect(tuple);
    }

    @Override
    public TypeInformation<Tuple5<Long, Long, Long, Long, Long>> getProducedType() {
      return Types.TUPLE(Types.LONG, Types.LONG, Types.LONG, Types.LONG, Types.LONG);
    }
  }

  /** Count and sum of a user lie in the state as two longs. Gives key and value of the record. */
  private static final class Totals
      extends KeyedProcessFunction<Long, Tuple5<Long, Long, Long, Long, Long>, Tuple2<byte[], byte[]>> {
    private transient ValueState<Tuple2<Long, Long>> state;
    private transient Event event;
    private transient Tuple2<Long, Long> first;
    private transient Tuple2<byte[], byte[]> record;

    @Override
    public void open(OpenContext context) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("totals", Types.TUPLE(Types.LONG, Types.LONG)));
      event = new Event();
      first = new Tuple2<>();
      record = new Tuple2<>();
    }

    @Override
    public void processElement(Tuple5<Long, Long, Long, Long, Long> in, Context context,
        Collector<Tuple2<byte[], byte[]>> out) throws IOException {
      Tuple2<Long, Long> totals = state.value();
      if (totals == null) {
        totals = first;
        totals.setFields(0L, 0L);
      }
      totals.setFields(totals.f0 + 1, totals.f1 + in.f2);
      state.update(totals);
      event.id = in.f0;
      event.user = in.f1;
      event.sent = in.f3;
      record.setFields(Long.toString(in.f1).getBytes(StandardCharsets.ISO_8859_1),
          event.tell(totals.f0, totals.f1, in.f4));
      out.collect(record);
    }
  }

  /** Key or value: a class of its own, because the builder asks for the type, which a lambda does not tell. */
  private static final class Part implements SerializationSchema<Tuple2<byte[], byte[]>> {
    private final int place;

    Part(int place) {
      this.place = place;
    }

    @Override
    public byte[] serialize(Tuple2<byte[], byte[]> record) {
      return record.getField(place);
    }
  }

  private static KafkaSource<Tuple5<Long, Long, Long, Long, Long>> source(String brokers, String topic,
      boolean isBounded) {
    KafkaSourceBuilder<Tuple5<Long, Long, Long, Long, Long>> source =
        KafkaSource.<Tuple5<Long, Long, Long, Long, Long>>builder().setBootstrapServers(brokers).setTopics(topic)
            .setStartingOffsets(OffsetsInitializer.earliest()).setDeserializer(new Parser())
            .setProperty("max.poll.records", "10000").setProperty("max.partition.fetch.bytes", "4194304")
            .setProperty("commit.offsets.on.checkpoint", "false");
    return (isBounded ? source.setBounded(OffsetsInitializer.latest()) : source).build();
  }

  /** POOLING needs the topic from the serializer's builder: it asks the broker for the transactions that are open. */
  private static KafkaSink<Tuple2<byte[], byte[]>> sink(String brokers, String topic) {
    Properties settings = new Properties();
    settings.put("batch.size", "262144");
    settings.put("compression.type", "lz4");
    settings.put("linger.ms", "5");
    settings.put("transaction.timeout.ms", "600000");
    return KafkaSink.<Tuple2<byte[], byte[]>>builder().setBootstrapServers(brokers).setKafkaProducerConfig(settings)
        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix(topic)
        .setTransactionNamingStrategy(TransactionNamingStrategy.POOLING)
        .setRecordSerializer(KafkaRecordSerializationSchema.<Tuple2<byte[], byte[]>>builder().setTopic(topic)
            .setKeySerializationSchema(new Part(0))
            .setValueSerializationSchema(new Part(1)).build())
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length < 6) {
      System.err.println("FeatureJob HOST PORT BROKERS IN OUT latest|never SETTINGS...");
      System.exit(2);
    }
    boolean isBounded = arguments[5].equals("latest");
    Configuration settings = new Configuration();
    for (int i = 6; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      settings.setString(pair[0], pair[1]);
    }
    StreamExecutionEnvironment job =
        StreamExecutionEnvironment.createRemoteEnvironment(arguments[0], Integer.parseInt(arguments[1]), settings);
    job.fromSource(source(arguments[2], arguments[3], isBounded), WatermarkStrategy.noWatermarks(), "events")
        .keyBy(event -> event.f1, Types.LONG).process(new Totals())
        .returns(Types.TUPLE(Types.PRIMITIVE_ARRAY(Types.BYTE), Types.PRIMITIVE_ARRAY(Types.BYTE)))
        .sinkTo(sink(arguments[2], arguments[4]));
    if (isBounded) {
      job.execute();
    } else {
      job.executeAsync();
    }
  }

  private FeatureJob() { }
}
