package org.apache.hadoop.fs;

import java.io.IOException;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
public abstract class FSDataOutputStreamBuilder<S extends FSDataOutputStream, B extends FSDataOutputStreamBuilder<S, B>>
        extends AbstractBuilder<S, B> {
    public abstract S build() throws IOException;
}

abstract class AbstractBuilder<S, B extends FSBuilder<S, B>> implements FSBuilder<S, B> {
    public B must(String key, String value) {
        throw new UnsupportedOperationException();
    }
}
